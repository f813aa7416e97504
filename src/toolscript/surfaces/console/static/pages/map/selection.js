// Tools that were chosen on the map, and a skill made of them.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

const MAX_SHOWN = 60;
const MAX_TOOLS = 200;

function makeId(name) {
  return name.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^[^a-z]+|_+$/g, "").slice(0, 64);
}

export function Selection({ tools, onClose }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [made, setMade] = useState(0);
  const [create, { busy, error }] = useAction(async () => {
    const id = makeId(name);
    await ask("POST", "/api/v1/skills", { body: { id, name, description, examples: tools.slice(0, 5).map((tool) => tool.id.slice(0, 200)) } });
    for (const tool of tools) await ask("PUT", `/api/v1/tools/${encodeURIComponent(tool.id)}/skills`, { body: { skill_ids: [id] } });
    setMade(tools.length);
  });
  return html`<section class="section card padded chosen" aria-label="Chosen tools">
    <div class="call-head"><h2>${plural(tools.length, "tool")} chosen</h2><button type="button" class="button small" onClick=${onClose}>Let go</button></div>
    <p class="names mono">${tools.slice(0, MAX_SHOWN).map((tool, i) => html`${i ? ", " : ""}<a key=${tool.id} href=${link("tool", tool.id)}><${Text} value=${tool.id} max=${80} /></a>`)}${tools.length > MAX_SHOWN && " …"}</p>
    ${made > 0 ? html`<p role="status">The skill was made, and ${plural(made, "tool")} put into it.</p>` : html`<form class="filters" onSubmit=${(event) => { event.preventDefault(); create(); }}>
      <label class="field"><span>Skill</span><input type="text" required maxlength="255" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
      <label class="field grow"><span>What its tools do</span><input type="text" maxlength="4000" value=${description} onInput=${(event) => setDescription(event.target.value)} /></label>
      <button type="submit" class="button primary" disabled=${busy || !makeId(name) || tools.length > MAX_TOOLS} title=${tools.length > MAX_TOOLS ? `Choose at most ${MAX_TOOLS}` : ""}>Make a skill of them</button></form>`}
    ${error && html`<${Problem} error=${error} />`}
  </section>`;
}
