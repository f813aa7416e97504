// The three strategies of hierarchical search side by side: what each found, how long its stages took, and what it costs.
import { formatCount, formatMs, formatPercent, plural } from "../../core/format.js";
import { html } from "../../core/dom.js";
import { useLiveRequest } from "../../core/live_request.js";
import { link } from "../../core/router.js";
import { Loading, Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

const STRATEGIES = [
  ["hierarchical", "First skills, then the tools in them"],
  ["hybrid", "In skills and everywhere, merged"],
  ["direct", "Everywhere at once"],
];
const STAGES = [
  ["query_embedding_time_ms", "embed", "of-meaning"],
  ["skill_search_time_ms", "skills", "of-name"],
  ["tool_search_time_ms", "tools", "of-words"],
  ["schema_load_time_ms", "schemas", "of-domain"],
];

export function Strategies({ query, used }) {
  return html`<section class="section strategies" aria-label="Strategies">
    ${STRATEGIES.map(([name, help]) => html`<${Strategy} key=${name} name=${name} help=${help} query=${query} used=${used} />`)}
  </section>`;
}

function Strategy({ name, help, query, used }) {
  const body = { query, strategy: name, limit: Math.min(50, used.limit), tool_threshold: used.threshold, closest: 3, count_tokens: true };
  const found = useLiveRequest({ method: "POST", path: "/api/v1/search", body });
  return html`<article class="card padded strategy" aria-label=${name} aria-busy=${String(found.loading)}>
    <header><h2>${name}</h2><p class="muted">${help}</p></header>
    ${found.error ? html`<${Problem} error=${found.error} />` : !found.data ? html`<${Loading} rows=${5} />` : html`<${Answer} answer=${found.data} />`}
  </article>`;
}

function Answer({ answer }) {
  const { metadata } = answer;
  return html`
    <${Timings} metadata=${metadata} />
    <${Tokens} tokens=${metadata.tokens} />
    ${answer.matched_skills.length > 0 && html`<p class="strategy-skills">${answer.matched_skills.map((skill) => html`
      <span class="tag accent" key=${skill.id}><${Text} value=${skill.name} max=${60} /> ${skill.score.toFixed(2)}</span>`)}</p>`}
    <ol class="strategy-tools">${answer.tools.map((tool) => html`<li key=${tool.id}>
      <a class="hit-name mono" href=${link("tool", tool.id)}><${Text} value=${tool.name} max=${80} /></a><span>${tool.score.toFixed(2)}</span>
      <small><${Text} value=${tool.description} max=${110} /></small></li>`)}
    </ol>
    ${answer.tools.length === 0 && html`<p class="muted">No tool is a confident match.</p>`}
    ${answer.closest && html`<p class="muted">Less sure:</p><ol class="strategy-tools">${answer.closest.map((tool) => html`<li key=${tool.id}>
      <a class="hit-name mono" href=${link("tool", tool.id)}><${Text} value=${tool.id} max=${80} /></a><span>${tool.score.toFixed(2)}</span>
      <small><${Text} value=${tool.description} max=${110} /></small></li>`)}</ol>`}
    <p class="muted">${plural(metadata.stage2_candidate_count, "candidate")}${metadata.degraded.length > 0 && `, without ${metadata.degraded.join(", ")}`}</p>`;
}

function Timings({ metadata }) {
  const total = Math.max(metadata.total_time_ms, 0.001);
  const label = STAGES.map(([field, name]) => `${name} ${formatMs(metadata[field])}`).join(", ");
  return html`<div class="strategy-figure"><p><span>Time</span><strong>${formatMs(metadata.total_time_ms)}</strong></p>
    <div class="bar" role="img" aria-label=${label} title=${label}>${STAGES.map(([field, name, colour]) => html`
      <i key=${name} class=${colour} style=${{ width: `${(100 * metadata[field]) / total}%` }}></i>`)}</div>
    <p class="legend">${STAGES.every(([field]) => !metadata[field]) ? "kept from an earlier search" : STAGES.map(([field, name, colour]) => html`<span key=${name}><i class=${colour}></i>${name} ${formatMs(metadata[field])}</span>`)}</p></div>`;
}

function Tokens({ tokens }) {
  const share = tokens.all_tools ? Math.min(1, tokens.answer / tokens.all_tools) : 0;
  return html`<div class="strategy-figure"><p><span>Tokens</span><strong>${formatCount(tokens.answer)}</strong></p>
    <div class="bar" role="img" aria-label=${`${tokens.answer} tokens instead of ${tokens.all_tools}`}><i class="of-plain" style=${{ width: `${100 * share}%` }}></i></div>
    <p class="legend">${formatPercent(share)} of the ${formatCount(tokens.all_tools)} tokens of all tools</p></div>`;
}
