// What each threshold would do.
import { html } from "../../core/dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 200, 46, 20];
const x = (value) => LEFT + value * (WIDTH - LEFT - 8);
const y = (value) => 8 + (1 - value) * (HEIGHT - BOTTOM - 8);

function draw(points, field) {
  return points.filter((point) => point[field] !== null).map((point, i) => `${i ? "L" : "M"}${x(point.threshold).toFixed(1)} ${y(point[field]).toFixed(1)}`).join("");
}

export function Curve({ points, threshold }) {
  const now = points.findLast((point) => point.threshold <= threshold + 1e-9);
  const percent = (share) => (share === null ? "none" : `${Math.round(100 * share)} %`);
  const parts = [
    now.answered !== null && `${percent(now.answered)} of the requests get an answer, and of these ${percent(now.precise)} the right tool first`,
    now.empty !== null && `${percent(now.empty)} of those that no tool serves get none`,
  ];
  const label = `At the threshold ${threshold}: ${parts.filter(Boolean).join("; ")}`;
  return html`<figure class="card curve">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${label}>
      ${[0, 0.25, 0.5, 0.75, 1].map((value) => html`<g key=${value}><path class="grid" d=${`M${x(0)} ${y(value)}H${x(1)}`} /><text x="2" y=${y(value) + 3}>${100 * value} %</text><text x=${x(value) - 8} y=${HEIGHT - 5}>${value}</text></g>`)}
      <path class="now" d=${`M${x(threshold)} ${y(0)}V${y(1)}`} /><path class="answered" d=${draw(points, "answered")} /><path class="precise" d=${draw(points, "precise")} /><path class="empty-line" d=${draw(points, "empty")} />
    </svg>
    <figcaption><p class="legend"><span><i class="of-meaning"></i>requests with an answer</span><span><i class="of-words"></i>of these, the right tool first</span>${now.empty !== null && html`<span><i class="of-name"></i>requests that no tool serves, without an answer</span>`}</p><p>${label}.</p></figcaption>
  </figure>`;
}
