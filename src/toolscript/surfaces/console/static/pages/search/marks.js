// Tells the gateway whether a tool is right or wrong for a request: searches with like words then find it sooner or later.
import { ask } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { useAction } from "../../core/hooks.js";
import { Icon } from "../../parts/icons.js";

const MAX_CHARACTERS = 1000;

export function Marks({ query, toolId }) {
  const [mark, setMark] = useState(null);
  const [send, { busy, error }] = useAction(async (useful) => {
    const { changed } = await ask("POST", "/api/v1/feedback", { body: { tool_id: toolId, query: query.slice(0, MAX_CHARACTERS), useful } });
    setMark({ useful, changed });
  });
  useEffect(() => setMark(null), [query, toolId]);
  const message = error?.message ?? (mark && describe(mark));
  return html`<span class="marks">
    ${message && html`<small class="marks-said" role="status">${message}</small>`}
    <button type="button" class="button quiet small" disabled=${busy} aria-pressed=${String(mark?.useful === true)} onClick=${() => send(mark?.useful === true ? null : true)}
      title="The right tool for the request; again takes it back" aria-label="Right"><${Icon} name="right" /></button>
    <button type="button" class="button quiet small" disabled=${busy} aria-pressed=${String(mark?.useful === false)} onClick=${() => send(mark?.useful === false ? null : false)}
      title="A wrong tool for the request; again takes it back" aria-label="Wrong"><${Icon} name="wrong" /></button>
  </span>`;
}

function describe({ useful, changed }) {
  if (useful === null) return changed ? "taken back" : "nothing to take back";
  return useful ? "recorded as right" : "recorded as wrong";
}
