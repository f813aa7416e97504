// JSON as a tree that opens and closes.
import { html, useState } from "../core/dom.js";
import { Text, visible } from "./text.js";

const MAX_SHOWN = 100;
const OPEN_DEPTH = 2;

export function JsonTree({ value, name, depth = 0 }) {
  const [max, setMax] = useState(MAX_SHOWN);
  const label = name === undefined ? "" : html`<span class="json-name"><bdi>${visible(name).slice(0, 200)}</bdi>: </span>`;
  if (value === null || typeof value !== "object") return html`<div class="json-leaf">${label}<${Leaf} value=${value} /></div>`;
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  if (!entries.length) return html`<div class="json-leaf">${label}<span class="muted">${isList ? "[]" : "{}"}</span></div>`;
  return html`<details class="json" open=${depth < OPEN_DEPTH}><summary>${label}<span class="muted">${isList ? `[${entries.length}]` : `{${entries.length}}`}</span></summary>
    ${entries.slice(0, max).map(([key, each]) => html`<${JsonTree} key=${key} name=${key} value=${each} depth=${depth + 1} />`)}
    ${entries.length > max && html`<button type="button" class="linklike" onClick=${() => setMax(10 * max)}>Show more of ${entries.length}</button>`}
  </details>`;
}

function Leaf({ value }) {
  if (typeof value === "string") return html`<span class="json-text">"<${Text} value=${value} max=${2000} />"</span>`;
  return html`<span class="json-value">${String(value)}</span>`;
}
