// The queue of suggested skills. Keys: a approves, r rejects, m merges, j and k move.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction, useApi } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

const MAX_SHOWN = 40;

/** `first` is the id of the suggestion to begin with, if there is one. */
export function Review({ skills, first, onDecided }) {
  const queue = useApi("/api/v1/skills/suggestions");
  const [chosen, setIndex] = useState(null);
  const [target, setTarget] = useState("");
  const waiting = queue.data?.suggestions ?? [];
  const index = Math.min(chosen ?? Math.max(0, waiting.findIndex((each) => String(each.id) === first)), waiting.length - 1);
  const current = waiting[index];
  const [decide, { busy, error }] = useAction(async (decision) => {
    if (decision === "merge" && !target) throw new Error("Choose the skill to merge it into.");
    const body = decision === "merge" ? { skill_id: target } : {};
    await ask("POST", `/api/v1/skills/suggestions/${current.id}/${decision}`, { body });
    queue.reload();
    onDecided();
  });
  if (queue.error && queue.error.status !== 503) return html`<section class="section" aria-label="Review"><${Problem} error=${queue.error} /></section>`;
  if (!current) return null;
  const press = (event) => {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey) return;
    const step = { j: 1, k: -1 }[event.key];
    const decision = { a: "approve", r: "reject", m: "merge" }[event.key];
    if (step) setIndex(Math.max(0, Math.min(waiting.length - 1, index + step)));
    else if (decision && !busy) decide(decision);
  };
  return html`<section class="card padded review" aria-label="Review" tabindex="0" onKeyDown=${press}>
    <div class="call-head"><h2>${plural(waiting.length, "suggested skill")} to review</h2>
      <p class="muted"><kbd>a</kbd><kbd>r</kbd><kbd>m</kbd> decide, <kbd>j</kbd><kbd>k</kbd> move</p></div>
    <p><strong><${Text} value=${current.name} max=${120} /></strong>${current.source_tool_id && html` for <a class="mono" href=${link("tool", current.source_tool_id)}><${Text} value=${current.source_tool_id} max=${100} /></a>`}</p>
    <p><${Text} value=${current.description} max=${600} /></p>
    ${current.tool_ids.length > 0 && html`<p>For ${plural(current.tool_ids.length, "tool")}: <span class="names mono">${current.tool_ids.slice(0, MAX_SHOWN).map((id, i) => html`${i ? ", " : ""}<a key=${id} href=${link("tool", id)}><${Text} value=${id} max=${80} /></a>`)}${current.tool_ids.length > MAX_SHOWN && " …"}</span></p>`}
    <p class="tags">${current.keywords.slice(0, 16).map((word) => html`<span class="tag" key=${word}><${Text} value=${word} max=${40} /></span>`)}</p>
    ${error && html`<${Problem} error=${error} />`}
    <div class="review-end"><button type="button" class="button primary" disabled=${busy} onClick=${() => decide("approve")}>Approve</button>
      <button type="button" class="button" disabled=${busy} onClick=${() => decide("reject")}>Reject</button>
      <select aria-label="Merge into" value=${target} onChange=${(event) => setTarget(event.target.value)}><option value="">Merge into …</option>
        ${skills.map((skill) => html`<option key=${skill.id} value=${skill.id}><${Text} value=${skill.name} max=${60} /></option>`)}</select>
      <button type="button" class="button" disabled=${busy || !target} onClick=${() => decide("merge")}>Merge</button></div>
  </section>`;
}
