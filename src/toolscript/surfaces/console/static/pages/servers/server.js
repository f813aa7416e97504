// One server: its state and the reason, and on demand its latest calls.
import { html, useEffect, useState } from "../../core/dom.js";
import { formatAgo, formatMs, plural } from "../../core/format.js";
import { useApi } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Sparkline } from "../../parts/sparkline.js";
import { Loaded } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

const DOTS = { ready: "ok", failed: "bad", connecting: "warn", asleep: "" };
const TAGS = { ready: "good", failed: "bad", connecting: "warn", asleep: "" };
const MEANINGS = {
  ready: "Connected", failed: "The last attempt failed", connecting: "Starting", asleep: "Not running: the next call starts it",
};
const MAX_CALLS = 60;

export function Server({ server, isOpen, onToggle }) {
  const offers = [["tools", "tool"], ["prompts", "prompt"], ["resources", "resource"]].filter(([name]) => server[name]);
  return html`<li class="server">
    <button type="button" class="server-head" aria-expanded=${String(isOpen)} onClick=${onToggle}>
      <span class=${`dot ${DOTS[server.state]}`}></span>
      <span class="server-name"><${Text} value=${server.name} max=${80} /></span>
      <span class=${`tag ${TAGS[server.state]}`} title=${MEANINGS[server.state]}>${server.needsLogin ? "needs a login" : server.state}</span>
      <span class="server-offers muted">${offers.map(([name, one]) => plural(server[name], one)).join(", ")}</span>
      <span class="server-transport muted">${server.transport}</span>
    </button>
    ${server.reason && html`<p class="server-reason"><bdi>${visible(server.reason).slice(0, 1500)}</bdi> <${Retry} server=${server} /></p>`}
    ${server.callsPausedSeconds != null && html`<p class="server-reason">Calls are refused for ${Math.ceil(server.callsPausedSeconds)} s, because it kept failing.</p>`}
    ${server.needsLogin && html`<p class="server-reason">Log in: <code>toolscript login ${visible(server.name)}</code></p>`}
    ${isOpen && html`<${Details} server=${server} />`}
  </li>`;
}

function Retry({ server }) {
  const [left, setLeft] = useState(server.retryInSeconds);
  useEffect(() => {
    setLeft(server.retryInSeconds);
    const timer = setInterval(() => setLeft((seconds) => (seconds ? Math.max(0, seconds - 1) : seconds)), 1000);
    return () => clearInterval(timer);
  }, [server.attempts, server.retryInSeconds]);
  if (left == null) return null;
  return html`<span class="muted">${plural(server.attempts, "attempt")}, ${left > 0 ? `next in ${Math.ceil(left)} s` : "trying now"}</span>`;
}

function Details({ server }) {
  const calls = useApi(`/api/v1/calls?${new URLSearchParams({ server: server.name, limit: MAX_CALLS })}`);
  return html`<div class="server-details">
    ${server.problems.length > 0 && html`<div class="note"><p>These items cannot be used:</p><ul>${server.problems.slice(0, 50).map((problem) => html`<li key=${problem}><${Text} value=${problem} max=${400} /></li>`)}</ul></div>`}
    <p><a href=${link("tools", "", { server: server.name })}>Its tools</a></p>
    <${Loaded} from=${calls} rows=${2}>${({ events }) => events.length === 0 ? html`<p class="muted">Nobody has called it yet.</p>` : html`
      <p class="muted">Time of its last ${plural(events.length, "call")}, the newest on the right, ${formatAgo(events[0].time)}</p>
      <${Sparkline} label=${`Times of the last calls, the newest ${formatMs(events[0].ms)}`}
        points=${[...events].reverse().map((event) => ({ value: event.ms, isBad: event.outcome !== "ok", title: `${event.tool}: ${formatMs(event.ms)}, ${event.outcome}` }))} />
      <p class="muted">Median ${formatMs(median(events.map((event) => event.ms)))}, ${plural(events.filter((event) => event.outcome !== "ok").length, "error")}</p>`}</${Loaded}>
  </div>`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
