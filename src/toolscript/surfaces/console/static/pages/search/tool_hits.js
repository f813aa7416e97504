// Tools, the confident ones and the closest, with reasons, and what changed against the gateway's own settings.
import { formatCount, formatMs, formatPercent, plural } from "../../core/format.js";
import { html } from "../../core/dom.js";
import { useLiveRequest } from "../../core/live_request.js";
import { link } from "../../core/router.js";
import { PartsBar, PartsLegend } from "../../parts/parts_bar.js";
import { Empty, Loading, Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";
import { describeDegraded } from "./degraded.js";
import { Marks } from "./marks.js";

const MORE = 7;
const MAX_CLOSEST = 3;
const NUMBERS = ["threshold", "alpha", "limit"];

function buildRequest(query, { threshold, alpha, limit }) {
  const given = new URLSearchParams({ q: query, threshold, alpha, limit: Math.min(100, limit), closest: MAX_CLOSEST, explain: "true" });
  return { method: "GET", path: `/search?${given}` };
}

export function ToolHits({ query, used, defaults }) {
  const found = useLiveRequest(buildRequest(query, used));
  const isChanged = NUMBERS.some((name) => used[name] !== defaults[name]);
  const usual = useLiveRequest(isChanged ? buildRequest(query, defaults) : null);
  // What was not returned is asked for afterwards: it must not delay what was.
  const beyond = useLiveRequest(found.data && { ...buildRequest(query, { ...used, threshold: 0, limit: used.limit + MORE }) });
  if (found.error) return html`<section class="section"><${Problem} error=${found.error} /></section>`;
  if (!found.data) return html`<section class="section"><${Loading} rows=${6} label="Searching" /></section>`;
  const hits = found.data.results;
  const returned = new Set(hits.map((hit) => hit.toolId));
  const missed = (beyond.data?.query === found.data.query ? beyond.data.results : []).filter((hit) => !returned.has(hit.toolId));
  const closest = new Set(found.data.closest?.map((hit) => hit.toolId));
  const near = missed.filter((hit) => closest.has(hit.toolId));
  const rest = missed.filter((hit) => !closest.has(hit.toolId));
  const ranks = isChanged && usual.data ? new Map(usual.data.results.map((hit, i) => [hit.toolId, i])) : null;
  return html`<section class="section" aria-label="Tools" aria-busy=${String(found.loading)}>
    <div class="section-head"><h2>Tools</h2><${Summary} answer=${found.data} /></div>
    ${found.data.degraded && html`<p class="note">${describeDegraded(found.data.degraded)}</p>`}
    ${hits.length === 0 ? html`<${Empty} title="No tool is a confident match">
        ${closest.size ? "The closest follow." : "Nothing in the catalogue is like this request."}</${Empty}>`
      : html`<ol class="hits card">${hits.map((hit, i) => html`
          <${ToolHit} key=${hit.toolId} hit=${hit} query=${query} rank=${i + 1} change=${describeChange(ranks, hit, i)} />`)}</ol>`}
    ${near.length > 0 && html`<div role="group" aria-label="Less sure"><h3>Less sure</h3>
      <ol class="hits card">${near.map((hit, i) => html`
        <${ToolHit} key=${hit.toolId} hit=${hit} query=${query} rank=${hits.length + i + 1} note="below the threshold" />`)}</ol></div>`}
    ${rest.length > 0 && html`<details class="missed"><summary>${plural(rest.length, "more tool")} not returned</summary>
      <ol class="hits card">${rest.map((hit, i) => html`<${ToolHit} key=${hit.toolId} hit=${hit} query=${query}
        rank=${hits.length + near.length + i + 1} note=${hit.confidence < used.threshold ? "below the threshold" : "beyond the limit"} />`)}</ol></details>`}
    <${PartsLegend} />
  </section>`;
}

function describeChange(ranks, hit, i) {
  if (!ranks) return null;
  const before = ranks.get(hit.toolId);
  if (before === undefined) return ["good", "new"];
  if (before === i) return null;
  return before > i ? ["good", `▲ ${before - i}`] : ["bad", `▼ ${i - before}`];
}

function Summary({ answer }) {
  const { timingsMs, tokens } = answer;
  const stages = Object.entries(timingsMs).filter(([name]) => name !== "total");
  const saved = tokens.allTools ? 1 - tokens.answer / tokens.allTools : 0;
  return html`<p class="count">
    ${formatCount(answer.totalResults)} of ${plural(answer.candidates, "candidate")} ·${" "}
    <span title=${stages.map(([name, ms]) => `${name} ${formatMs(ms)}`).join(", ")}>${formatMs(timingsMs.total)}</span> ·${" "}
    <span title="Estimated context tokens of this answer, and of all tools together">${formatCount(tokens.answer)} tokens instead
    of ${formatCount(tokens.allTools)}${saved > 0 && ` (−${formatPercent(saved)})`}</span></p>`;
}

function ToolHit({ hit, query, rank, change, note }) {
  return html`<li class=${note ? "hit faded" : "hit"}>
    <span class="hit-rank">${rank}</span>
    <div class="hit-body">
      <p class="hit-title"><a class="hit-name mono" href=${link("tool", hit.toolId, { q: query })}><${Text} value=${hit.toolName} max=${120} /></a>
        <span class="tag"><${Text} value=${hit.serverName} max=${60} /></span>
        ${hit.type && html`<span class="tag">${hit.type.replace("_", " ")}</span>`}
        ${hit.variants && html`<span class="tag" title=${hit.variants.slice(0, 20).join(", ")}>+${hit.variants.length} the same</span>`}
        ${hit.serverState && html`<span class=${hit.serverState === "asleep" ? "tag" : "tag warn"}>${hit.serverState}</span>`}
        ${hit.quarantined && html`<span class="tag warn" title=${hit.quarantined.slice(0, 500)}>in quarantine</span>`}
        ${change && html`<span class=${`tag ${change[0]}`} title="Against the gateway's own settings">${change[1]}</span>`}
        ${note && html`<span class="tag">${note}</span>`}</p>
      <p class="hit-text"><${Text} value=${hit.description} max=${280} /></p>
      ${hit.for && html`<p class="hit-text">For: <${Text} value=${hit.for} max=${160} /></p>`}
    </div>
    <div class="hit-why">
      <p><strong>${hit.confidence.toFixed(2)}</strong><${Marks} query=${query} toolId=${hit.toolId} /></p>
      <${PartsBar} parts=${hit.parts} total=${hit.confidence} />
      <p class="hit-reason"><${Text} value=${hit.reason} max=${160} /></p>
    </div>
  </li>`;
}
