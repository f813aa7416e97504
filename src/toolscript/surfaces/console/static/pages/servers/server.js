// One server: its state and the reason, and on demand what it does.
import { html, useEffect, useState } from "../../core/dom.js";
import { formatMs, plural } from "../../core/format.js";
import { link } from "../../core/router.js";
import { Sparkline } from "../../parts/sparkline.js";
import { Text, visible } from "../../parts/text.js";
import { ServerActions } from "./actions.js";
import { Login } from "./login.js";
import { ServerLog } from "./log.js";

const STATES = {
  ready: ["ok", "good", "Connected"],
  failed: ["bad", "bad", "The last attempt failed"],
  connecting: ["warn", "warn", "Starting"],
  asleep: ["", "", "Not running: the next call starts it"],
  stopped: ["", "warn", "Not running: calls are refused until somebody starts it"],
};

export function Server({ server, isOpen, onToggle }) {
  const offers = [["tools", "tool"], ["prompts", "prompt"], ["resources", "resource"]].filter(([name]) => server[name]);
  const [dot, colour, meaning] = STATES[server.state];
  return html`<li class="server">
    <button type="button" class="server-head" aria-expanded=${String(isOpen)} onClick=${onToggle}>
      <span class=${`dot ${dot}`}></span>
      <span class="server-name"><${Text} value=${server.name} max=${80} /></span>
      <span class=${`tag ${colour}`} title=${meaning}>${server.needsLogin ? "needs a login" : server.state}</span>
      <span class="server-offers muted">${offers.map(([name, one]) => plural(server[name], one)).join(", ")}</span>
      <span class="server-pulse">${server.recentCalls.length > 0 && html`<${Calls} calls=${server.recentCalls} height=${20} />`}</span>
      <span class="server-transport muted">${server.transport}</span>
    </button>
    ${server.reason && html`<p class="server-reason"><bdi>${visible(server.reason).slice(0, 1500)}</bdi> <${Retry} server=${server} /></p>`}
    ${server.callsPausedSeconds != null && html`<p class="server-reason">Calls are refused for ${Math.ceil(server.callsPausedSeconds)} s, because it kept failing.</p>`}
    ${server.needsLogin && html`<${Login} server=${server} />`}
    ${isOpen && html`<${Details} server=${server} />`}
  </li>`;
}

function Calls({ calls, height }) {
  const points = calls.map(({ ms, ok }) => ({ value: ms, isBad: !ok, title: `${formatMs(ms)}${ok ? "" : ", failed"}` }));
  return html`<${Sparkline} points=${points} height=${height} label=${`Times of the last ${plural(calls.length, "call")}, the newest ${formatMs(calls.at(-1).ms)}`} />`;
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
  const { recentCalls: calls } = server;
  return html`<div class="server-details">
    <${ServerActions} server=${server} />
    ${server.loginPerUser && html`<${Login} server=${server} own />`}
    ${server.problems.length > 0 && html`<div class="note"><p>These items cannot be used:</p><ul>${server.problems.slice(0, 50).map((problem) => html`<li key=${problem}><${Text} value=${problem} max=${400} /></li>`)}</ul></div>`}
    <dl class="facts">
      <dt>Calls</dt><dd>${calls.length === 0 ? html`<span class="muted">none since the gateway started</span>` : html`<${Calls} calls=${calls} height=${44} />
        <span class="muted">the last ${calls.length}, the newest on the right: median ${formatMs(median(calls.map((call) => call.ms)))}, ${plural(calls.filter((call) => !call.ok).length, "error")}</span>
        <p><a href=${link("calls", "", { server: server.name })}>All calls</a></p>`}</dd>
      <dt>Restarts</dt><dd>${server.restarts}${server.restartReason && html`<span class="muted">, the last one: <${Text} value=${server.restartReason} max=${400} /></span>`}</dd>
      <dt>Tools</dt><dd><a href=${link("tools", "", { server: server.name })}>${plural(server.tools + server.prompts + server.resources, "item")} in the catalogue</a></dd>
    </dl>
    <${ServerLog} server=${server} />
  </div>`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
