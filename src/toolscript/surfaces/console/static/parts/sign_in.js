// Where a person gives the key of the gateway, and the token of a tenant for documents.
import { credentials, signIn, signInNeeded } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { useStore } from "../core/store.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { visible } from "./text.js";

export function AccountButton() {
  const { key, token } = useStore(credentials);
  const isSignedIn = Boolean(key || token);
  const label = isSignedIn ? "Signed in" : "Sign in with a key";
  return html`<button type="button" class="button quiet" title=${label} aria-label=${label}
    onClick=${() => signInNeeded.set({ message: "" })}><${Icon} name="key" />${isSignedIn && html`<span class="dot ok"></span>`}</button>`;
}

export function SignIn() {
  const reason = useStore(signInNeeded);
  const close = () => signInNeeded.set(null);
  return html`<${Dialog} isOpen=${Boolean(reason)} onClose=${close} title="Sign in">
    ${reason && html`<${SignInForm} reason=${reason} />`}
  </${Dialog}>`;
}

function SignInForm({ reason }) {
  const known = useStore(credentials);
  const [key, setKey] = useState(known.key);
  const [token, setToken] = useState(known.token);
  const submit = (event) => {
    event.preventDefault();
    signIn({ key: key.trim(), token: token.trim() });
  };
  return html`<form class="form" onSubmit=${submit}>
    ${reason.message && html`<p class="problem" role="alert">${known.key ? "The key was not accepted. " : ""}<bdi>${visible(reason.message)}</bdi></p>`}
    <label class="field"><span>Key</span>
      <input type="password" autocomplete="off" spellcheck="false" value=${key} onInput=${(e) => setKey(e.target.value)} />
      <small>TOOLSCRIPT_API_KEY, or a key of <code>toolscript keys create</code>. It is kept until this tab is closed. On the gateway's own machine <code>toolscript open</code> signs you in.</small></label>
    <label class="field"><span>Token of a tenant</span>
      <input type="password" autocomplete="off" spellcheck="false" value=${token} onInput=${(e) => setToken(e.target.value)} />
      <small>Only for documents, where the key has not the scope <code>documents</code>.</small></label>
    <div class="form-end">
      ${(known.key || known.token) && html`<button type="button" class="button" onClick=${() => signIn({})}>Sign out</button>`}
      <button type="submit" class="button primary" disabled=${!key.trim() && !token.trim()}>Sign in</button>
    </div>
  </form>`;
}
