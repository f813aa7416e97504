// Adds servers from the snippet that their documentation gives: what it would add is shown first.
import { ask } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction, useApi } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

const PAUSE_MS = 300;
const EXAMPLE = `{
  "mcpServers": {
    "git": { "command": "uvx", "args": ["mcp-server-git"] }
  }
}`;

export function AddServer() {
  const [snippet, setSnippet] = useState("");
  const [name, setName] = useState("");
  const [added, setAdded] = useState(null);
  const body = useDelayed(snippet.trim() ? { snippet, ...(name.trim() && { name: name.trim() }) } : null);
  const plan = useApi(body && "/api/v1/servers/check", { method: "POST", body: body ?? undefined });
  const [add, { busy, error }] = useAction(async () => {
    setAdded(await ask("POST", "/api/v1/servers", { body }));
    setSnippet("");
    setName("");
  });
  const isPlanned = body && plan.data && !plan.error;
  const needsName = Boolean(name) || plan.error?.details?.field === "name";
  const canAdd = isPlanned && !plan.loading && plan.data.servers.every((server) => !server.problem);
  const submit = (event) => {
    event.preventDefault();
    if (canAdd) add();
  };
  return html`<section class="section" aria-label="Add a server"><div class="section-head"><h2>Add a server</h2></div>
    <p class="muted">Paste the JSON that its documentation gives for any client. Its command runs on the machine of the gateway, as the gateway's user: add only what you trust.</p>
    <form class="card padded form add-server" onSubmit=${submit}>
      <label class="field"><span>Snippet</span>
        <textarea rows=${snippet ? 9 : 6} spellcheck="false" autocomplete="off" placeholder=${EXAMPLE} value=${snippet} onInput=${(event) => { setSnippet(event.target.value); setAdded(null); }}></textarea></label>
      ${needsName && html`<label class="field"><span>Name of the server</span>
        <input type="text" value=${name} onInput=${(event) => setName(event.target.value)} /></label>`}
      <div aria-live="polite">${body && plan.error && html`<${Refusal} error=${plan.error} />`}
        ${isPlanned && html`<ul class="planned">${plan.data.servers.map((server) => html`<${Planned} key=${server.name} server=${server} />`)}</ul>`}
        ${added && html`<p class="state good">Added ${added.servers.map((server) => visible(server.name)).join(", ")} to ${visible(added.file)}. The gateway connects now.</p>`}</div>
      ${error && html`<${Problem} error=${error} />`}
      ${isPlanned && html`<p class="form-end"><span class="muted">into <code><bdi>${visible(plan.data.file)}</bdi></code></span>
        <button type="submit" class="button primary" disabled=${busy || !canAdd}>${busy ? "Adding" : `Add ${plural(plan.data.servers.length, "server")}`}</button></p>`}
    </form></section>`;
}

/** What is wrong with the text while one writes is no alarm. */
function Refusal({ error }) {
  if (error.status !== 400 && error.status !== 422) return html`<${Problem} error=${error} />`;
  return html`<p class="note"><bdi>${visible(error.message)}</bdi></p>`;
}

function Planned({ server }) {
  return html`<li>
    <p><strong><${Text} value=${server.name} max=${100} /></strong> ${server.transport && html`<span class="tag">${server.transport}</span>`}
      ${server.problem && html`<span class="tag bad">cannot be added</span>`}</p>
    ${server.runs && html`<p class="mono planned-runs"><bdi>${visible(server.runs)}</bdi></p>`}
    ${server.cwd && html`<p class="muted">in the folder <code><bdi>${visible(server.cwd)}</bdi></code></p>`}
    ${server.envFile && html`<p class="muted">with the variables of <code><bdi>${visible(server.envFile)}</bdi></code></p>`}
    ${server.sandbox && html`<p class="muted">in a sandbox: ${server.sandbox}</p>`}
    ${server.variables.length > 0 && html`<p class="muted">with ${server.variables.map((each) => visible(each)).join(", ")}</p>`}
    ${server.problem && html`<p class="planned-problem"><bdi>${visible(server.problem).slice(0, 1500)}</bdi></p>`}
    ${server.warnings.map((warning) => html`<p class="muted" key=${warning}>⚠ <${Text} value=${warning} max=${300} /></p>`)}
  </li>`;
}

/** The value, once it has not changed for a moment. */
function useDelayed(value) {
  const [settled, setSettled] = useState(value);
  const text = JSON.stringify(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(JSON.parse(text)), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
