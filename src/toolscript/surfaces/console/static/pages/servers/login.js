// A login at a server that requires one: it is begun here, and finished in a tab of this browser.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAction } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";
import { visible } from "../../parts/text.js";

export function Login({ server }) {
  const [begun, setBegun] = useState(null);
  const [begin, { busy, error }] = useAction(async () => setBegun(await ask("POST", `/api/v1/servers/${encodeURIComponent(server.name)}/login`)));
  const isAddress = begun && /^https?:\/\//i.test(begun.url);  // a server chose it
  return html`<div class="server-login">
    ${isAddress
      ? html`<a class="button primary small" href=${begun.url} target="_blank" rel="noopener noreferrer">Continue at ${visible(begun.host).slice(0, 100)}</a>
        <span class="muted">It opens in a new tab. The server connects when you have logged in there.</span>
        <button type="button" class="button small quiet" disabled=${busy} onClick=${begin}>Begin again</button>`
      : html`<button type="button" class="button primary small" disabled=${busy} onClick=${begin}>${busy ? "Asking the server" : "Log in"}</button>`}
    ${error && html`<${Problem} error=${error} />`}
  </div>`;
}
