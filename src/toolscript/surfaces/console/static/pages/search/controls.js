// The three numbers that decide what a search returns.
import { html } from "../../core/dom.js";

const SLIDERS = [
  { name: "threshold", title: "Threshold", min: 0, max: 1, step: 0.01, digits: 2, help: "Minimum confidence" },
  { name: "alpha", title: "Meaning", min: 0, max: 1, step: 0.05, digits: 2, help: "Weight of meaning (alpha); the rest is that of words" },
  { name: "limit", title: "Limit", min: 1, max: 50, step: 1, digits: 0, help: "Maximum number of tools" },
];

export function Controls({ used, defaults, choices, onChange }) {
  const isChanged = SLIDERS.some(({ name }) => choices[name] !== null && choices[name] !== defaults[name]);
  return html`<fieldset class="controls">
    <legend class="unseen">What a search returns</legend>
    ${SLIDERS.map(({ name, title, min, max, step, digits, help }) => html`<label key=${name} title=${help}>
      <span>${title}<b>${used[name].toFixed(digits)}</b></span>
      <input type="range" min=${min} max=${max} step=${step} value=${used[name]} aria-description=${help}
        onInput=${(event) => onChange({ ...choices, [name]: Number(event.target.value) })} />
    </label>`)}
    <button type="button" class="button small" disabled=${!isChanged}
      onClick=${() => onChange({ threshold: null, alpha: null, limit: null })}>As agents get it</button>
  </fieldset>`;
}
