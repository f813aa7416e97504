// The answer of a tool: texts, images, sounds and resources one after another, or its structured value as a tree.
import { html } from "../core/dom.js";
import { JsonTree } from "./json_tree.js";
import { LongText, Text } from "./text.js";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif)$/;

export function Answer({ value }) {
  const blocks = value && Array.isArray(value.content) && value.content.every((each) => each?.type) ? value.content : null;
  return html`<div class="answer">${blocks ? blocks.map((block, i) => html`<${Block} key=${i} block=${block} />`) : html`<${JsonTree} value=${value} />`}</div>`;
}

function Block({ block }) {
  switch (block.type) {
    case "text": return html`<${TextBlock} text=${block.text} />`;
    case "image": return IMAGES.test(block.mimeType)
      ? html`<img class="answer-image" src=${`data:${block.mimeType};base64,${block.data}`} alt="An image of the answer" />`
      : html`<p class="muted">An image of the type <${Text} value=${block.mimeType} max=${80} /></p>`;
    case "audio": return html`<p class="muted">Sound, <${Text} value=${block.mimeType} max=${80} />, ${block.data?.length ?? 0} characters of base64</p>`;
    case "resource_link": return html`<p><span class="tag">resource</span> <${Text} value=${block.title ?? block.name ?? ""} max=${200} /> <code><${Text} value=${block.uri} max=${400} /></code></p>`;
    case "resource": return html`<div><p><span class="tag">resource</span> <code><${Text} value=${block.resource?.uri} max=${400} /></code></p>
      ${block.resource?.text != null && html`<${TextBlock} text=${block.resource.text} />`}</div>`;
    default: return html`<${JsonTree} value=${block} />`;
  }
}

function TextBlock({ text }) {
  const trimmed = String(text).trim();
  if (/^[[{]/.test(trimmed) && trimmed.length < 500_000) {
    try {
      return html`<${JsonTree} value=${JSON.parse(trimmed)} />`;
    } catch { /* it only looks like JSON */ }
  }
  return html`<${LongText} mono value=${text} max=${4000} />`;
}
