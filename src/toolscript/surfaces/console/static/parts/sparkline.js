// Numbers in a row as bars; those that failed in another colour.
import { html } from "../core/dom.js";

const WIDTH = 8;
const HEIGHT = 44;

export function Sparkline({ points, label }) {
  const highest = Math.max(...points.map((point) => point.value), 0.001);
  return html`<svg class="sparkline" role="img" aria-label=${label} viewBox=${`0 0 ${points.length * WIDTH} ${HEIGHT}`} width=${points.length * WIDTH} height=${HEIGHT}>
    ${points.map((point, i) => {
      const height = Math.max(2, (point.value / highest) * HEIGHT);
      return html`<rect key=${i} class=${point.isBad ? "bad" : ""} x=${i * WIDTH} y=${HEIGHT - height} width=${WIDTH - 2} height=${height} rx="1"><title>${point.title}</title></rect>`;
    })}
  </svg>`;
}
