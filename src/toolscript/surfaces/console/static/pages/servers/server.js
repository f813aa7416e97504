// One server: its state and the reason, and on demand what it does.
import { html, useEffect, useState } from "../../core/dom.js";
import { formatMs, plural } from "../../core/format.js";
import { useApi } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Sparkline } from "../../parts/sparkline.js";
import { Text, visible } from "../../parts/text.js";
import { ServerActions } from "./actions.js";
import { describeLogin, describeLogout, Login, Logout, sharedLogin } from "./login.js";
import { ServerLog } from "./log.js";

const STATES = {
  ready: ["ok", "good", "Connected"],
  failed: ["bad", "bad", "The last attempt failed"],
  connecting: ["warn", "warn", "Starting"],
  asleep: ["", "", "Not running: the next call starts it"],
  stopped: ["", "warn", "Not running: calls are refused until somebody starts it"],
};

const REMOTE = new Set(["http", "sse", "openapi"]);

export function Server({ server, isOpen, onToggle }) {
  const offers = [["tools", "tool"], ["prompts", "prompt"], ["resources", "resource"], ["agentSkills", "agent skill"]].filter(([name]) => server[name]);
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
    ${server.needsLogin && html`<${Login} path=${sharedLogin(server.name)} effect="The server connects when you have logged in there." />`}
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
    ${server.problems.length > 0 && html`<div class="note"><p>These items cannot be used:</p><ul>${server.problems.slice(0, 50).map((problem) => html`<li key=${problem}><${Text} value=${problem} max=${400} /></li>`)}</ul></div>`}
    <dl class="facts">
      <dt>Calls</dt><dd>${calls.length === 0 ? html`<span class="muted">none since the gateway started</span>` : html`<${Calls} calls=${calls} height=${44} />
        <span class="muted">the last ${calls.length}, the newest on the right: median ${formatMs(median(calls.map((call) => call.ms)))}, ${plural(calls.filter((call) => !call.ok).length, "error")}</span>
        <p><a href=${link("calls", "", { server: server.name })}>All calls</a></p>`}</dd>
      ${REMOTE.has(server.transport) && html`<${SharedLogin} server=${server} />`}
      ${server.sandbox && html`<dt>Sandbox</dt><dd>${server.sandbox}</dd>`}
      <dt>Restarts</dt><dd>${server.restarts}${server.restartReason && html`<span class="muted">, the last one: <${Text} value=${server.restartReason} max=${400} /></span>`}</dd>
      <dt>Tools</dt><dd><a href=${link("tools", "", { server: server.name })}>${plural(server.tools + server.prompts + server.resources + server.agentSkills, "item")} in the catalogue</a></dd>
    </dl>
    <${ServerLog} server=${server} />
  </div>`;
}

function SharedLogin({ server }) {
  const [done, setDone] = useState("");
  const login = useApi(sharedLogin(server.name), { version: server.state + server.needsLogin });
  const finish = (revoked) => {
    setDone(describeLogout(revoked));
    login.reload();
  };
  if (!login.data?.loggedIn && !login.data?.problem && !done) return null;  // most servers need none
  const effect = server.loginPerUser ? "The gateway cannot list its tools until somebody logs in again. Logins of users stay." : "Calls to its tools fail, for everyone, until somebody logs in again.";
  return html`<dt>Login</dt><dd>${login.data && html`<span>${server.loginPerUser && "of the installation: "}${describeLogin(login.data)}</span>
    ${(login.data.loggedIn || login.data.problem) && html` <${Logout} path=${sharedLogin(server.name)} server=${server.name} effect=${effect} onDone=${finish} />`}`}
    <span role="status" class="muted">${!login.data?.loggedIn && done}</span></dd>`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
