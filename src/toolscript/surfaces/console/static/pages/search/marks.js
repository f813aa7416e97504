// Tells the gateway which tool was right: searches with like words find it better from then on.
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
    <button type="button" class="button quiet small" disabled=${busy} aria-pressed=${String(mark?.useful === true)} onClick=${() => send(true)}
      title="This is the right tool for the request" aria-label="Right"><${Icon} name="right" /></button>
    <button type="button" class="button quiet small" disabled=${busy} aria-pressed=${String(mark?.useful === false)} onClick=${() => send(false)}
      title="Not the right tool: takes back what you recorded for it" aria-label="Wrong"><${Icon} name="wrong" /></button>
  </span>`;
}

function describe({ useful, changed }) {
  if (useful) return changed ? "recorded" : "known already";
  return changed ? "taken back" : "nothing to take back";
}
