// How the gateway is: what is degraded, how long things take, what it uses.
import { send } from "../core/api.js";
import { html, useEffect, useState } from "../core/dom.js";
import { formatAgo, formatBytes, formatCount, formatMs, plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { parseMetrics, single, sum, summarise } from "../core/metrics.js";
import { Loading, Problem } from "../parts/states.js";
import { Text } from "../parts/text.js";
import { Caches, Degraded, IndexSizes } from "./health/parts.js";

const EVERY_MS = 5000;

function useMetrics() {
  const [state, setState] = useState({ data: null, error: null, before: null });
  useEffect(() => {
    const control = new AbortController();
    const load = async () => {
      try {
        const text = await (await send("GET", "/metrics", { signal: control.signal })).text();
        setState((old) => ({ data: parseMetrics(text), before: old.data && { metrics: old.data, at: old.at }, at: performance.now(), error: null }));
      } catch (error) {
        if (!control.signal.aborted) setState((old) => ({ ...old, error }));
      }
    };
    load();
    const timer = setInterval(() => document.hidden || load(), EVERY_MS);
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, []);
  return state;
}

export default function HealthPage() {
  useTitle("Health");
  const ready = useApi("/ready", { every: EVERY_MS });
  const health = useApi("/health", { every: EVERY_MS });
  const stats = useApi("/search/stats", { every: EVERY_MS });
  const index = useApi("/");
  const metrics = useMetrics();
  return html`<div class="page-head"><h1>Health</h1><p>${index.data && `Version ${index.data.version}`}</p></div>
    <${State} ready=${ready} health=${health} stats=${stats} />
    <div class="figures">
      <${Figure} title="Tools" value=${formatCount(stats.data?.indexedTools)} note=${stats.data && `${stats.data.model ?? "no model"}${stats.data.dimensions ? `, ${stats.data.dimensions} dimensions` : ""}`} />
      <${Figure} title="Embedded" value=${formatCount(stats.data?.embeddedSinceStart)} note="texts of tools since the start" />
      ${metrics.data && html`<${Process} metrics=${metrics.data} before=${metrics.before} at=${metrics.at} />`}
    </div>
    ${metrics.error && html`<section class="section"><${Problem} error=${metrics.error} /></section>`}
    ${!metrics.data && !metrics.error && html`<${Loading} rows=${8} />`}
    ${metrics.data && html`
      <${Degraded} metrics=${metrics.data} />
      <div class="pair"><${IndexSizes} metrics=${metrics.data} /><${Caches} metrics=${metrics.data} /></div>
      <${Times} title="Stages of searches" rows=${summarise(metrics.data, "toolscript_stage_seconds", ["search", "stage"])} empty="Nothing was searched since the start." />
      <${Times} title="Requests" rows=${summarise(metrics.data, "toolscript_http_request_seconds", ["method", "route"])} empty="No requests yet." />`}`;
}

function State({ ready, health, stats }) {
  const problems = [];
  if (ready.error) problems.push(ready.error.message);
  if (stats.data?.fallback) problems.push(stats.data.fallback);
  if (health.data?.audit?.failing) problems.push("The audit cannot be written: calls go on, and are not recorded.");
  if (health.data?.audit?.lost) problems.push(`${plural(health.data.audit.lost, "event")} of the audit were lost since the start.`);
  const { failed = 0, stopped = 0, needs_login: logins = 0 } = ready.data?.servers ?? {};
  if (failed) problems.push(`${plural(failed, "server")} failed.`);
  if (stopped) problems.push(`${plural(stopped, "server")} stopped by somebody.`);
  if (logins) problems.push(`${plural(logins, "server")} wait for a login.`);
  if (!ready.data && !ready.error) return html`<${Loading} rows=${1} />`;
  return problems.length === 0 ? html`<p class="state good"><span class="dot ok"></span>Everything works.</p>`
    : html`<ul class="state warn">${problems.map((text) => html`<li key=${text}><span class="dot warn"></span><${Text} value=${text} max=${400} /></li>`)}</ul>`;
}

function Figure({ title, value, note }) {
  return html`<div class="card figure"><p class="figure-title">${title}</p><p class="figure-value">${value}</p>${note && html`<p class="muted"><${Text} value=${note} max=${80} /></p>`}</div>`;
}

function Process({ metrics, before, at }) {
  const rate = (name) => (before ? ((sum(metrics, name) - sum(before.metrics, name)) / ((at - before.at) / 1000)).toFixed(1) : "–");
  const note = (name) => `${formatCount(sum(metrics, name))} since the start`;
  const started = single(metrics, "process_start_time_seconds");
  return html`
    <${Figure} title="Requests a second" value=${rate("toolscript_http_requests_total")} note=${note("toolscript_http_requests_total")} />
    <${Figure} title="Searches a second" value=${rate("toolscript_searches_total")} note=${note("toolscript_searches_total")} />
    <${Figure} title="Memory" value=${formatBytes(single(metrics, "process_resident_memory_bytes"))} note=${`${formatCount(single(metrics, "process_open_fds"))} open files`} />
    <${Figure} title="Tool calls" value=${formatCount(sum(metrics, "toolscript_tool_calls_total"))}
      note=${plural(sum(metrics, "toolscript_tool_calls_total", (labels) => labels.outcome !== "ok"), "error")} />
    ${started && html`<${Figure} title="Started" value=${formatAgo(1000 * started)} note=${new Date(1000 * started).toLocaleString("en-GB")} />`}`;
}

function Times({ title, rows, empty }) {
  const longest = Math.max(...rows.map((row) => row.p95 ?? 0), 0.001);
  return html`<section class="section" aria-label=${title}><div class="section-head"><h2>${title}</h2></div>
    ${rows.length === 0 ? html`<p class="muted">${empty}</p>` : html`<div class="card table-scroll" tabindex="0"><table>
      <thead><tr><th scope="col">What</th><th scope="col" class="wide"><span class="unseen">p95 as a bar</span></th><th scope="col" class="right">Number</th><th scope="col" class="right aside">Mean</th><th scope="col" class="right">Median</th><th scope="col" class="right">p95</th></tr></thead>
      <tbody>${rows.slice(0, 40).map((row) => html`<tr key=${row.name}><td class="mono"><${Text} value=${row.name.trim()} max=${80} /></td>
        <td class="wide"><div class="bar" aria-hidden="true"><i class="of-plain" style=${{ width: `${(100 * (row.p95 ?? 0)) / longest}%` }}></i></div></td>
        <td class="right">${formatCount(row.count)}</td><td class="right aside">${formatMs(row.mean)}</td><td class="right">${formatMs(row.p50)}</td><td class="right">${formatMs(row.p95)}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}
