// Tools that were chosen on the map, and a skill proposed for them.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

const MAX_SHOWN = 60;
const MAX_TOOLS = 200;

export function Selection({ tools, onClose }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [proposed, setProposed] = useState(null);
  const [propose, { busy, error }] = useAction(async () => {
    setProposed(await ask("POST", "/api/v1/skills/suggestions", { body: { name, description, tool_ids: tools.map((tool) => tool.id) } }));
  });
  return html`<section class="section card padded chosen" aria-label="Chosen tools">
    <div class="call-head"><h2>${plural(tools.length, "tool")} chosen</h2><button type="button" class="button small" onClick=${onClose}>Let go</button></div>
    <p class="names mono">${tools.slice(0, MAX_SHOWN).map((tool, i) => html`${i ? ", " : ""}<a key=${tool.id} href=${link("tool", tool.id)}><${Text} value=${tool.id} max=${80} /></a>`)}${tools.length > MAX_SHOWN && " …"}</p>
    ${proposed ? html`<p role="status">The skill is proposed. <a href=${link("skills", "", { review: proposed.id })}>Review it</a> to put ${plural(tools.length, "tool")} into it.</p>` : html`<form class="filters" onSubmit=${(event) => { event.preventDefault(); propose(); }}>
      <label class="field"><span>Skill</span><input type="text" required maxlength="255" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
      <label class="field grow"><span>What its tools do</span><input type="text" maxlength="4000" value=${description} onInput=${(event) => setDescription(event.target.value)} /></label>
      <button type="submit" class="button primary" disabled=${busy || !name.trim() || tools.length > MAX_TOOLS}>Propose a skill</button></form>
      ${tools.length > MAX_TOOLS && html`<p class="note">A skill has at most ${MAX_TOOLS} tools: choose fewer.</p>`}`}
    ${error && html`<${Problem} error=${error} />`}
  </section>`;
}
