// Everything in the catalogue, by server.
import { html, useMemo, useState } from "../core/dom.js";
import { plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { link } from "../core/router.js";
import { Empty, Loaded } from "../parts/states.js";
import { Text } from "../parts/text.js";

const MAX_SHOWN = 200;

export default function ToolsPage({ at }) {
  useTitle("Tools");
  const tools = useApi("/tools");
  return html`<div class="page-head"><h1>Tools</h1>${tools.data && html`<p>${plural(tools.data.totalTools, "tool")}, prompts, resources and agent skills included</p>`}</div>
    <${Loaded} from=${tools} rows=${12}>${(data) => html`<${List} tools=${data.tools} at=${at} key=${at.query.get("server")} />`}</${Loaded}>`;
}

function List({ tools, at }) {
  const [server, setServer] = useState(at.query.get("server") ?? "");
  const [words, setWords] = useState("");
  const [max, setMax] = useState(MAX_SHOWN);
  const servers = useMemo(() => [...new Set(tools.map((tool) => tool.serverName))].sort(), [tools]);
  const lowered = words.trim().toLowerCase();
  const found = useMemo(() => tools.filter((tool) => (!server || tool.serverName === server)
    && (!lowered || `${tool.toolName} ${tool.description.slice(0, 2000)}`.toLowerCase().includes(lowered))), [tools, server, lowered]);
  return html`
    <div class="filters">
      <label class="field"><span>Server</span><select value=${server} onChange=${(e) => setServer(e.target.value)}><option value="">All</option>
        ${servers.map((name) => html`<option key=${name} value=${name}><${Text} value=${name} max=${80} /></option>`)}</select></label>
      <label class="field"><span>Words</span><input type="text" value=${words} onInput=${(e) => setWords(e.target.value)} /></label>
    </div>
    ${found.length === 0 ? html`<${Empty} title=${tools.length ? "No tool matches" : "The catalogue is empty"} />` : html`<div class="card table-scroll" tabindex="0"><table class="stacked">
      <thead><tr><th scope="col">Name</th><th scope="col">Server</th><th scope="col">Description</th></tr></thead>
      <tbody>${found.slice(0, max).map((tool) => html`<tr key=${tool.toolId}>
        <td><a class="mono" href=${link("tool", tool.toolId)}><${Text} value=${tool.toolName} max=${80} /></a>
          ${tool.type !== "tool" && html` <span class="tag">${tool.type.replace("_", " ")}</span>`}${tool.quarantined && html` <span class="tag warn">in quarantine</span>`}</td>
        <td class="nowrap"><${Text} value=${tool.serverName} max=${40} /></td><td class="muted"><${Text} value=${tool.description} max=${160} /></td></tr>`)}</tbody></table></div>`}
    ${found.length > max && html`<p class="more"><button type="button" class="button" onClick=${() => setMax(max + 5 * MAX_SHOWN)}>Show more of ${plural(found.length, "tool")}</button></p>`}`;
}
