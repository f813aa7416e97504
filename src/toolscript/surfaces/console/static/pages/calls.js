// The audit log: calls, searches, refusals and changes of servers, with filters and a timeline.
import { html, useState } from "../core/dom.js";
import { formatBytes, formatCount, formatMs, plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { link } from "../core/router.js";
import { Timeline } from "../parts/timeline.js";
import { Empty, Loaded } from "../parts/states.js";
import { Text } from "../parts/text.js";
import { CallFilters } from "./calls/filters.js";

const PAGE = 50;
const TIMELINE = 200;
const NOTHING = { kind: "calls", server: "", tool: "", caller: "", outcome: "", since: "24h" };

function buildPath(path, filters, more = {}) {
  return `${path}?${new URLSearchParams(Object.entries({ ...filters, ...more }).filter(([, value]) => value !== ""))}`;
}

export default function CallsPage({ at }) {
  useTitle("Calls");
  const [filters, setFilters] = useState({ ...NOTHING, server: at.query.get("server") ?? "", tool: at.query.get("tool") ?? "" });
  const [tokens, setTokens] = useState([]);
  const change = (next) => {
    setTokens([]);
    setFilters(next);
  };
  const events = useApi(buildPath("/api/v1/calls", filters, { limit: PAGE, page_token: tokens.at(-1) ?? "" }), { every: tokens.length ? 0 : 5000 });
  const recent = useApi(buildPath("/api/v1/calls", filters, { limit: TIMELINE }), { every: 5000 });
  const servers = useApi(filters.kind === "calls" ? buildPath("/api/v1/calls/summary", filters, { by: "server" }) : null, { every: 10_000 });
  return html`<div class="page-head"><h1>Calls</h1><p>What the gateway recorded, newest first</p></div>
    <${CallFilters} filters=${filters} onChange=${change} onReset=${() => change(NOTHING)} />
    ${recent.data?.events.length > 0 && html`<${Timeline} events=${recent.data.events} />`}
    ${servers.data?.rows.length > 0 && html`<${ByServer} rows=${servers.data.rows} onChoose=${(server) => change({ ...filters, server })} />`}
    <section class="section" aria-label="Events"><${Loaded} from=${events} rows=${10}>${(data) => data.events.length === 0
      ? html`<${Empty} title="Nothing was recorded">${filters.kind === "calls" ? "No tool was called with these filters." : "There are no such events with these filters."}</${Empty}>`
      : html`<${Events} events=${data.events} kind=${filters.kind} />
        <p class="more"><button type="button" class="button" disabled=${!tokens.length} onClick=${() => setTokens(tokens.slice(0, -1))}>Newer</button>${" "}
          <button type="button" class="button" disabled=${!data.next_page_token} onClick=${() => setTokens([...tokens, data.next_page_token])}>Older</button></p>`}</${Loaded}></section>`;
}

function ByServer({ rows, onChoose }) {
  const most = Math.max(...rows.map((row) => row.calls), 1);
  return html`<section class="section" aria-label="By server"><div class="section-head"><h2>By server</h2></div>
    <div class="card table-scroll" tabindex="0"><table><thead><tr><th scope="col">Server</th><th scope="col" class="wide">Calls and errors</th><th scope="col" class="right">Calls</th><th scope="col" class="right">Errors</th><th scope="col" class="right">Median</th><th scope="col" class="right">p95</th></tr></thead>
      <tbody>${rows.slice(0, 30).map((row) => html`<tr key=${row.name}>
        <td><button type="button" class="linklike" onClick=${() => onChoose(row.name)}><${Text} value=${row.name || "none"} max=${60} /></button></td>
        <td class="wide"><div class="bar" aria-hidden="true"><i class="of-plain" style=${{ width: `${(100 * (row.calls - row.errors)) / most}%` }}></i><i class="of-bad" style=${{ width: `${(100 * row.errors) / most}%` }}></i></div></td>
        <td class="right">${formatCount(row.calls)}</td><td class="right">${formatCount(row.errors)}</td><td class="right">${formatMs(row.p50_ms)}</td><td class="right">${formatMs(row.p95_ms)}</td></tr>`)}</tbody></table></div></section>`;
}

/** A digest is only good to compare: its beginning is enough. */
function shorten(text) {
  return text.replace(/^(sha256:[0-9a-f]{12})[0-9a-f]+$/, "$1…");
}

function Events({ events, kind }) {
  const last = { calls: "Arguments", searches: "Request", refusals: "Reason", servers: "About" }[kind];
  return html`<div class="card table-scroll" tabindex="0"><table><thead><tr><th scope="col">Time</th><th scope="col">${kind === "calls" ? "Tool" : "What"}</th><th scope="col">Outcome</th><th scope="col" class="right">Took</th><th scope="col">Caller</th><th scope="col">${last}</th></tr></thead>
    <tbody>${events.map((event) => html`<tr key=${event.id}>
      <td class="nowrap muted" title=${event.time}>${new Date(event.time).toLocaleTimeString("en-GB")}</td>
      <td>${kind === "calls" && event.server ? html`<a class="mono" href=${link("tool", event.tool)}><${Text} value=${event.tool} max=${80} /></a>` : html`<code><${Text} value=${event.tool} max=${80} /></code>${kind === "servers" && html` <${Text} value=${event.server} max=${80} />`}`}</td>
      <td><span class=${event.outcome === "ok" ? "tag good" : "tag bad"}><${Text} value=${event.outcome} max=${40} /></span></td>
      <td class="right nowrap">${formatMs(event.ms)}</td>
      <td><${Text} value=${event.caller} max=${40} /> <small>${event.surface}</small>${event.called_by && html` <small>by <${Text} value=${event.called_by} max=${80} /></small>`}</td>
      <td class="muted details"><${Text} value=${shorten(event.arguments ?? event.query ?? event.reason ?? event.about ?? "")} max=${120} />
        ${event.bytes != null && html` <small>${formatBytes(event.bytes)}</small>`}${event.hits != null && html` <small>${plural(event.hits, "hit")}</small>`}</td></tr>`)}</tbody></table></div>`;
}
