// Numbers in a row as bars; those that failed in another colour.
import { html } from "../core/dom.js";

export function Sparkline({ points, label, height = 44 }) {
  const [width, gap] = height < 30 ? [4, 1] : [8, 2];
  const highest = Math.max(...points.map((point) => point.value), 0.001);
  return html`<svg class="sparkline" role="img" aria-label=${label} viewBox=${`0 0 ${points.length * width} ${height}`} width=${points.length * width} height=${height}>
    ${points.map((point, i) => {
      const bar = Math.max(2, (point.value / highest) * height);
      return html`<rect key=${i} class=${point.isBad ? "bad" : ""} x=${i * width} y=${height - bar} width=${width - gap} height=${bar} rx="1"><title>${point.title}</title></rect>`;
    })}
  </svg>`;
}
