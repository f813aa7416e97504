// Named keys: create one, whose secret is shown once and kept nowhere, list them, revoke them.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAction, useApi } from "../../core/hooks.js";
import { Dialog } from "../../parts/dialog.js";
import { Empty, Loaded, Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

const DAY = 86_400;
const TIMES = [["", "never"], [String(DAY), "in a day"], [String(30 * DAY), "in 30 days"], [String(365 * DAY), "in a year"]];
const SCOPES = [
  ["search", "find and describe tools"],
  ["call", "call tools"],
  ["documents", "the documents of one tenant"],
  ["knowledge", "search knowledge"],
  ["metrics", "read /metrics"],
  ["admin", "servers, skills, approvals, keys: not for agents"],
];
const formatTime = (time, none) => (time ? new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : none);

export function Keys() {
  const keys = useApi("/api/v1/keys");
  return html`<section class="section" aria-label="Keys"><div class="section-head"><h2>Keys</h2></div>
    <p class="muted">Once a key exists, callers that are not on the gateway's own machine need one.</p>
    <${CreateKey} onCreated=${keys.reload} />
    <${Loaded} from=${keys} rows=${3}>${(data) => data.keys.length === 0 ? html`<${Empty} title="There are no keys" />` : html`
      <div class="card table-scroll keys-list" tabindex="0"><table><thead><tr><th scope="col">Name</th><th scope="col">Scopes</th><th scope="col">State</th><th scope="col">Expires</th><th scope="col">Created</th><th scope="col">Tenant</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>${data.keys.map((key) => html`<tr key=${key.name}>
          <td><strong><${Text} value=${key.name} max=${64} /></strong></td><td>${key.scopes.join(", ")}</td>
          <td><span class=${key.state === "active" ? "tag good" : "tag"}>${key.state}</span></td>
          <td class="nowrap">${formatTime(key.expires_at, "never")}</td><td class="nowrap">${formatTime(key.created_at)}</td>
          <td><${Text} value=${key.tenant ?? ""} max=${80} /></td>
          <td class="right">${key.state === "active" && html`<${Revoke} name=${key.name} onRevoked=${keys.reload} />`}</td></tr>`)}</tbody></table></div>`}</${Loaded}>
  </section>`;
}

function CreateKey({ onCreated }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["search", "call"]);
  const [expires, setExpires] = useState("");
  const [tenant, setTenant] = useState("");
  const [created, setCreated] = useState(null);
  const [create, { busy, error }] = useAction(async () => {
    const isForDocuments = scopes.includes("documents");
    setCreated(await ask("POST", "/api/v1/keys", { body: {
      name: name.trim(), scopes, ...(expires && { expires_in_seconds: Number(expires) }), ...(isForDocuments && tenant.trim() && { tenant: tenant.trim() }),
    } }));
    setName("");
    onCreated();
  });
  const toggle = (scope) => setScopes(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope]);
  const submit = (event) => {
    event.preventDefault();
    create();
  };
  return html`<form class="card padded form create-key" aria-label="Create a key" onSubmit=${submit}>
    <label class="field"><span>Name</span><input type="text" autocomplete="off" spellcheck="false" maxlength="64" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
    <fieldset class="scopes"><legend>Scopes</legend>${SCOPES.map(([scope, meaning]) => html`<label key=${scope}>
      <input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} /> <strong>${scope}</strong> <span class="muted">${meaning}</span></label>`)}</fieldset>
    ${scopes.includes("documents") && html`<label class="field"><span>Tenant</span><input type="text" autocomplete="off" spellcheck="false" maxlength="256" value=${tenant} onInput=${(event) => setTenant(event.target.value)} /></label>`}
    <label class="field"><span>Expires</span><select value=${expires} onChange=${(event) => setExpires(event.target.value)}>${TIMES.map(([seconds, text]) => html`<option key=${seconds} value=${seconds}>${text}</option>`)}</select></label>
    ${error && html`<${Problem} error=${error} />`}
    <p class="form-end"><button type="submit" class="button primary" disabled=${busy || !name.trim() || !scopes.length}>Create the key</button></p>
    <${Dialog} isOpen=${Boolean(created)} onClose=${() => setCreated(null)} title="The key, shown once">
      ${created && html`<p>Keep the secret of <strong>${visible(created.name)}</strong> now: it is stored nowhere and never shown again.</p>
        <p class="secret mono" tabindex="0">${created.key}</p>
        <p class="form-end dialog-end"><button type="button" class="button primary" onClick=${() => setCreated(null)}>I have it</button></p>`}
    </${Dialog}>
  </form>`;
}

function Revoke({ name, onRevoked }) {
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  const [revoke, { busy, error }] = useAction(async () => {
    await ask("POST", `/api/v1/keys/${encodeURIComponent(name)}/revoke`);
    close();
    onRevoked();
  });
  return html`<button type="button" class="button small" aria-label=${`Revoke ${name}`} onClick=${() => setAsking(true)}>Revoke</button>
    <${Dialog} isOpen=${isAsking} onClose=${close} title=${`Revoke ${name}?`}>
      <p>It stops working for good, on every gateway within seconds. Its name cannot be used again.</p>
      ${error && html`<${Problem} error=${error} />`}
      <p class="form-end dialog-end"><button type="button" class="button" onClick=${close}>Cancel</button>
        <button type="button" class="button primary" disabled=${busy} onClick=${revoke}>${busy ? "Revoking" : "Revoke the key"}</button></p>
    </${Dialog}>`;
}
