// What a page shows while there is nothing to show.
import { html } from "../core/dom.js";
import { signInNeeded } from "../core/api.js";
import { visible } from "./text.js";

export function Loading({ label = "Loading", rows = 3 }) {
  return html`<div class="skeleton" role="status" aria-label=${label}>
    ${Array.from({ length: rows }, (_, i) => html`<span key=${i}></span>`)}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

export function Problem({ error, onRetry }) {
  const needsKey = error.status === 401;
  return html`<div class="problem" role="alert">
    <p><strong>${nameProblem(error)}</strong></p>
    <p><bdi>${visible(error.message)}</bdi></p>
    ${needsKey && html`<button type="button" class="button" onClick=${() => signInNeeded.set(error)}>Sign in</button>`}
    ${!needsKey && onRetry && html`<button type="button" class="button" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

function nameProblem(error) {
  if (error.status === 0) return "No answer";
  if (error.status === 401) return "A key is needed";
  if (error.status === 403) return "Not allowed";
  if (error.status === 404) return "Not found";
  if (error.status === 503) return "Not available now";
  return "That did not work";
}

/** What has been loaded, or the state of loading it. */
export function Loaded({ from, children, rows }) {
  if (from.data !== null) return children(from.data);
  if (from.error) return html`<${Problem} error=${from.error} onRetry=${from.reload} />`;
  return html`<${Loading} rows=${rows} />`;
}
