// What a confidence is made of.
import { html } from "../core/dom.js";

export const PARTS = ["meaning", "words", "name", "domain", "capability"];
const MEANINGS = {
  meaning: "How close the text of the tool is to the request",
  words: "Words that both share",
  name: "The request contains the tool's name, or one like it",
  domain: "Both are of the same domain",
  capability: "The tool can do the work of that domain",
};

export function PartsBar({ parts, total }) {
  const shown = PARTS.filter((name) => parts[name] > 0);
  const label = `Confidence ${total.toFixed(2)}: ${shown.map((name) => `${name} ${parts[name].toFixed(2)}`).join(", ")}`;
  return html`<div class="bar" role="img" aria-label=${label} title=${label}>
    ${shown.map((name) => html`<i key=${name} class=${`of-${name}`} style=${{ width: `${100 * parts[name]}%` }}></i>`)}
  </div>`;
}

export function PartsLegend() {
  return html`<p class="legend" aria-label="Colours of the bars">
    ${PARTS.map((name) => html`<span key=${name} title=${MEANINGS[name]}><i class=${`of-${name}`}></i>${name}</span>`)}
  </p>`;
}
