// Events over time: how many in each span, errors in another colour.
import { html } from "../core/dom.js";
import { plural } from "../core/format.js";

const SPANS = 60;
const WIDTH = 600;
const HEIGHT = 60;

export function Timeline({ events }) {
  const times = events.map((event) => Date.parse(event.time));
  const end = Date.now();
  const start = Math.min(...times, end - 60_000);
  const size = (end - start) / SPANS;
  const spans = Array.from({ length: SPANS }, () => [0, 0]);
  events.forEach((event, i) => {
    const span = spans[Math.min(SPANS - 1, Math.max(0, Math.floor((times[i] - start) / size)))];
    span[event.outcome === "ok" ? 0 : 1] += 1;
  });
  const most = Math.max(...spans.map(([good, bad]) => good + bad));
  const step = WIDTH / SPANS;
  const clock = (time) => new Date(time).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
  return html`<figure class="card timeline">
    <svg role="img" aria-label=${`${plural(events.length, "event")} between ${clock(start)} and now`} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
      ${spans.map(([good, bad], i) => {
        const [a, b] = [(good / most) * HEIGHT, (bad / most) * HEIGHT];
        return html`<g key=${i}><title>${`${clock(start + i * size)}: ${good} ok, ${bad} errors`}</title>
          <rect x=${i * step} width=${step - 1.5} y=${HEIGHT - a} height=${a} class="good" /><rect x=${i * step} width=${step - 1.5} y=${HEIGHT - a - b} height=${b} class="bad" /></g>`;
      })}
    </svg>
    <figcaption><span>${clock(start)}</span><span>${plural(events.length, "event")}</span><span>now</span></figcaption>
  </figure>`;
}
