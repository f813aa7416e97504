// A definition that changed, is new or suspicious: what differs, and the decision.
import { ask } from "../../core/api.js";
import { html } from "../../core/dom.js";
import { formatAgo } from "../../core/format.js";
import { useAction, useApi } from "../../core/hooks.js";
import { Loaded, Problem } from "../../parts/states.js";
import { LongText, Text, visible } from "../../parts/text.js";

const MAX_LINES = 400;

export function Quarantine({ toolId, reason, onDecided }) {
  const found = useApi(`/api/v1/quarantine/${encodeURIComponent(toolId)}`);
  return html`<section class="card padded quarantine" aria-label="Quarantine">
    <h2>In quarantine: it can be found, and not called</h2>
    <p><${Text} value=${reason} max=${600} /></p>
    <${Loaded} from=${found}>${(data) => html`<${Decision} entry=${data} onDecided=${onDecided} />`}</${Loaded}>
  </section>`;
}

function Decision({ entry, onDecided }) {
  const [decide, { busy, error }] = useAction(async (decision) => {
    await ask("POST", `/api/v1/quarantine/${decision}`, { body: { tool_ids: [entry.tool_id], digest: entry.digest } });
    onDecided();
  });
  return html`
    <p class="muted">Seen ${formatAgo(entry.since)}${entry.state === "rejected" ? ", rejected" : ""}</p>
    ${entry.passage && html`<div><h3>The suspicious passage</h3><${LongText} mono value=${entry.passage} /></div>`}
    ${entry.changes.map((change) => html`<div key=${change.field}><h3>${visible(change.field)}</h3><${Diff} text=${change.diff} /></div>`)}
    ${entry.override && html`<div><h3>What the configuration changes of it</h3><${LongText} mono value=${JSON.stringify(entry.override, null, 2)} max=${4000} /></div>`}
    ${error && html`<${Problem} error=${error} />`}
    <div class="form-end">
      <button type="button" class="button" disabled=${busy || entry.state === "rejected"} onClick=${() => decide("reject")}>Reject</button>
      <button type="button" class="button primary" disabled=${busy} onClick=${() => decide("approve")}>Approve this definition</button>
    </div>`;
}

function Diff({ text }) {
  const lines = text.split("\n").filter((line) => !/^(---|\+\+\+) (approved|offered)$/.test(line));
  const kind = (line) => ({ "+": "added", "-": "removed", "@": "place" })[line[0]] ?? "same";
  return html`<pre class="diff" tabindex="0">${lines.slice(0, MAX_LINES).map((line, i) => html`<span key=${i} class=${kind(line)}>${visible(line.slice(0, 4000)) || " "}</span>`)}
    ${lines.length > MAX_LINES && html`<span class="place">… ${lines.length - MAX_LINES} more lines</span>`}</pre>`;
}
