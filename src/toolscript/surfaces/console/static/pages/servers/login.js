// A login at a server that requires one: it is begun here, and finished in a tab of this browser.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAction } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";
import { visible } from "../../parts/text.js";

/** `own`: for the calls of the person who is signed in, not for the installation. */
export function Login({ server, own = false }) {
  const [begun, setBegun] = useState(null);
  const [begin, { busy, error }] = useAction(async () => setBegun(await ask("POST", `/api/v1/servers/${encodeURIComponent(server.name)}/login${own ? "?own=true" : ""}`)));
  const isAddress = begun && /^https?:\/\//i.test(begun.url);  // a server chose it
  const title = own ? "Log in for my own calls" : "Log in";
  return html`<div class=${own ? "server-login own" : "server-login"}>
    ${isAddress
      ? html`<a class="button primary small" href=${begun.url} target="_blank" rel="noopener noreferrer">Continue at ${visible(begun.host).slice(0, 100)}</a>
        <span class="muted">It opens in a new tab. ${own ? "Your calls use the login then." : "The server connects when you have logged in there."}</span>
        <button type="button" class="button small quiet" disabled=${busy} onClick=${begin}>Begin again</button>`
      : html`<button type="button" class="button primary small" disabled=${busy} onClick=${begin}>${busy ? "Asking the server" : title}</button>`}
    ${error && html`<${Problem} error=${error} />`}
  </div>`;
}
