// What a person can do with a server: start, stop, restart.
import { ask } from "../../core/api.js";
import { html } from "../../core/dom.js";
import { useAction } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";

const ACTIONS = {
  ready: [["restart", "Restart"], ["stop", "Stop"]],
  connecting: [["restart", "Restart"], ["stop", "Stop"]],
  failed: [["start", "Try now"], ["stop", "Stop"]],
  asleep: [["start", "Start"], ["stop", "Stop"]],
  stopped: [["start", "Start"]],
};

export function ServerActions({ server }) {
  const [run, { busy, error }] = useAction((action) => ask("POST", `/api/v1/servers/${encodeURIComponent(server.name)}/${action}`));
  return html`<p class="actions server-actions">${ACTIONS[server.state].map(([action, title]) => html`
      <button type="button" key=${action} class=${action === "start" ? "button primary small" : "button small"} disabled=${busy} onClick=${() => run(action)}>${title}</button>`)}
    </p>${error && html`<${Problem} error=${error} />`}`;
}
