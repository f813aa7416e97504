// Logins at servers that require one: begun here and finished in a tab of this browser; and logging out.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAction } from "../../core/hooks.js";
import { Dialog } from "../../parts/dialog.js";
import { Problem } from "../../parts/states.js";
import { visible } from "../../parts/text.js";

/** The routes of the installation's login at a server, and of one's own. */
export const sharedLogin = (name) => `/api/v1/servers/${encodeURIComponent(name)}/login`;
export const ownLogin = (name) => `/api/v1/own-logins/${encodeURIComponent(name)}`;

export function Login({ path, effect, onBegun }) {
  const [begun, setBegun] = useState(null);
  const [begin, { busy, error }] = useAction(async () => {
    setBegun(await ask("POST", path));
    onBegun?.();
  });
  const isAddress = begun && /^https?:\/\//i.test(begun.url);  // a server chose it
  return html`<div class="server-login">
    ${isAddress
      ? html`<a class="button primary small" href=${begun.url} target="_blank" rel="noopener noreferrer">Continue at ${visible(begun.host).slice(0, 100)}</a>
        <span class="muted">It opens in a new tab. ${effect}</span>
        <button type="button" class="button small quiet" disabled=${busy} onClick=${begin}>Begin again</button>`
      : html`<button type="button" class="button primary small" disabled=${busy} onClick=${begin}>${busy ? "Asking the server" : "Log in"}</button>`}
    ${error && html`<${Problem} error=${error} />`}
  </div>`;
}

/** Asks before it logs out: `effect` says what happens then. */
export function Logout({ path, server, effect, onDone }) {
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  const [run, { busy, error }] = useAction(async () => {
    const { revoked } = await ask("DELETE", path);
    close();
    onDone(revoked);
  });
  return html`<button type="button" class="button small" onClick=${() => setAsking(true)}>Log out</button>
    <${Dialog} isOpen=${isAsking} onClose=${close} title=${`Log out at ${visible(server).slice(0, 80)}?`}>
      <p>${effect}</p>
      ${error && html`<${Problem} error=${error} />`}
      <p class="form-end dialog-end"><button type="button" class="button" onClick=${close}>Cancel</button>
        <button type="button" class="button primary" disabled=${busy} onClick=${run}>${busy ? "Logging out" : "Log out"}</button></p>
    </${Dialog}>`;
}

/** What a login is, or why it is unknown. */
export function describeLogin(login) {
  if (login.problem) return visible(login.problem);
  if (!login.loggedIn) return "not logged in";
  return `logged in at ${visible(login.issuer).slice(0, 200)}${login.scope ? `, with ${visible(login.scope).slice(0, 300)}` : ""}`;
}

export function describeLogout(revoked) {
  return revoked ? "Logged out." : "Logged out. The authorization server has not revoked the tokens: end the session there, too.";
}
