// Calls that wait because their client cannot ask. A call keeps its place until the page is left: an agent, which can end
// its calls and begin others, must not move one under the pointer of a person who decides.
import { ask } from "../../core/api.js";
import { html, useRef } from "../../core/dom.js";
import { formatAgo } from "../../core/format.js";
import { useAction, useApi } from "../../core/hooks.js";
import { Empty, Problem } from "../../parts/states.js";
import { LongText, Text, visible } from "../../parts/text.js";

export function Approvals({ every }) {
  const { data, error, reload } = useApi("/api/v1/approvals", { every });
  const seen = useRef(new Map());
  for (const call of data?.calls ?? []) if (!seen.current.has(call.id)) seen.current.set(call.id, call);
  const waiting = new Set(data?.calls.map((call) => call.id));
  return html`<section class="section" aria-label="Calls that wait for approval"><div class="section-head"><h2>Calls that wait for approval</h2></div>
    <p class="muted">Their clients cannot ask a person. An approved call can be repeated once, within 10 minutes, by the same caller with the same arguments.</p>
    ${error && html`<${Problem} error=${error} onRetry=${reload} />`}
    ${seen.current.size === 0 ? html`<${Empty} title="No call waits" />`
      : html`<ul class="card rows waiting-calls">${[...seen.current.values()].map((call) => html`<${Waiting} key=${call.id} call=${call} isWaiting=${waiting.has(call.id)} onDecided=${reload} />`)}</ul>`}
  </section>`;
}

function Waiting({ call, isWaiting, onDecided }) {
  const decided = useRef("");
  const [decide, { busy, error }] = useAction(async (decision) => {
    try {
      decided.current = (await ask("POST", `/api/v1/approvals/${encodeURIComponent(call.id)}/${decision}`)).state;
    } finally {
      onDecided();
    }
  });
  const name = visible(call.tool_id).slice(0, 80);
  return html`<li class="waiting-call" aria-label=${`Call of ${name}`}>
    <p><strong class="mono"><${Text} value=${call.tool_id} max=${200} /></strong> of the server <${Text} value=${call.server} max=${80} /></p>
    <p class="muted">${formatAgo(call.created_at)}, by <${Text} value=${call.caller} max=${120} />${call.profile && html`, profile <${Text} value=${call.profile} max=${80} />`}, as <code><${Text} value=${call.id} max=${20} /></code></p>
    <${LongText} mono value=${call.arguments} />
    ${error && html`<${Problem} error=${error} />`}
    ${decided.current || !isWaiting ? html`<p role="status" class="muted">${decided.current ? `You have ${decided.current} it.` : "It does not wait any more."}</p>`
      : html`<p class="form-end"><button type="button" class="button" disabled=${busy} aria-label=${`Decline ${name}`} onClick=${() => decide("decline")}>Decline</button>
        <button type="button" class="button primary" disabled=${busy} aria-label=${`Approve ${name}`} onClick=${() => decide("approve")}>Approve</button></p>`}
  </li>`;
}
