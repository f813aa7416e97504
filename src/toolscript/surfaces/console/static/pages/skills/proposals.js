// Groups of tools that could be skills.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

export function Proposals() {
  const [found, setFound] = useState(null);
  const [propose, { busy, error }] = useAction(async () => setFound(await ask("POST", "/api/v1/skills/propose", { body: {} })));
  return html`<section class="section" aria-label="Proposals"><div class="section-head"><h2>Proposals</h2></div>
    <p class="actions"><button type="button" class="button" disabled=${busy} onClick=${propose}>${busy ? "Grouping the tools" : "Propose skills from the catalogue"}</button>
      <span role="status" class="muted">${found && plural(found.total, "group")}</span></p>
    ${error && html`<${Problem} error=${error} />`}
    ${found && html`<ul class="proposals">${found.proposals.map((each) => html`<li class="card padded" key=${each.id}>
      <h3><${Text} value=${each.name} max=${100} /></h3><p class="muted"><${Text} value=${each.description} max=${240} /></p>
      <p class="tags"><span class="tag accent">${plural(each.tool_count, "tool")}</span><span class="tag" title="How similar its tools are to each other">cohesion ${each.cohesion.toFixed(2)}</span>
        ${each.nearest_skill && html`<span class="tag" title="The nearest skill, and how similar it is"><${Text} value=${each.nearest_skill} max=${50} /> ${each.nearness.toFixed(2)}</span>`}</p>
      <p class="mono names"><${Text} value=${each.tools.slice(0, 8).join(", ")} max=${300} /></p></li>`)}</ul>`}
  </section>`;
}
