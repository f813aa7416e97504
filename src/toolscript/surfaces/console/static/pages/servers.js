// The servers behind the gateway, live.
import { ask } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { plural } from "../core/format.js";
import { useAction, useTitle } from "../core/hooks.js";
import { useEvents } from "../core/live_events.js";
import { Empty, Loaded, Problem } from "../parts/states.js";
import { Text, visible } from "../parts/text.js";
import { AddServer } from "./servers/add_server.js";
import { AgentConfiguration } from "./servers/agent_configuration.js";
import { FindServer } from "./servers/find_server.js";
import { OwnLogins } from "./servers/own_logins.js";
import { Server } from "./servers/server.js";

const ORDER = { failed: 0, connecting: 1, stopped: 2, ready: 3, asleep: 4 };

export default function ServersPage({ at }) {
  useTitle("Servers");
  const found = useEvents("/servers");
  return html`<div class="page-head"><h1>Servers</h1>${found.data && html`<${Counts} servers=${found.data.servers} />`}</div>
    <${Loaded} from=${found} rows=${8}>${(data) => html`
      ${data.configurationError && html`<p class="problem" role="alert"><strong>The last change of the configuration was not applied.</strong> <bdi>${visible(data.configurationError)}</bdi></p>`}
      ${data.configurationWarnings.map((warning) => html`<p class="note" key=${warning}><${Text} value=${warning} max=${500} /></p>`)}
      <${List} servers=${data.servers} first=${at.query.get("open")} />`}</${Loaded}>
    ${!found.loading && html`<${OwnLogins} />`}
    ${found.data && html`<${AddServer} /><${FindServer} /><${Synchronise} />`}
    <${AgentConfiguration} />`;
}

function Counts({ servers }) {
  const describe = (server) => (server.needsLogin ? "waiting for a login" : server.state);
  const states = ["waiting for a login", ...Object.keys(ORDER)].map((state) => [state, servers.filter((server) => describe(server) === state).length]).filter(([, n]) => n);
  return html`<p>${plural(servers.length, "server")}${states.length > 0 && `: ${states.map(([state, n]) => `${n} ${state}`).join(", ")}`}</p>`;
}

function List({ servers, first }) {
  const [open, setOpen] = useState(first);
  if (!servers.length) {
    return html`<${Empty} title="No servers are configured">The demo catalogue is served. Add a server below.</${Empty}>`;
  }
  const sorted = [...servers].sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.name.localeCompare(b.name));
  return html`<ul class="card rows">${sorted.map((server) => html`
    <${Server} key=${server.name} server=${server} isOpen=${open === server.name} onToggle=${() => setOpen(open === server.name ? null : server.name)} />`)}</ul>`;
}

function Synchronise() {
  const [report, setReport] = useState(null);
  const [run, { busy, error }] = useAction(async () => setReport(await ask("POST", "/api/v1/sync", { body: {} })));
  const failed = report?.servers.filter((server) => server.error) ?? [];
  const sum = (name) => report.servers.reduce((total, server) => total + server[name], 0);
  return html`<section class="section" aria-label="Catalogue"><div class="section-head"><h2>Catalogue</h2></div>
    <p class="muted">Servers announce most changes by themselves. To list all of them again now:</p>
    <p class="actions"><button type="button" class="button" disabled=${busy} onClick=${run}>${busy ? "Listing all servers" : "List all servers again"}</button>
      <span role="status">${report && `${plural(report.items, "item")}: ${sum("added")} added, ${sum("changed")} changed, ${sum("vanished")} removed.`}
      ${failed.length > 0 && ` Not listed: ${failed.map((server) => visible(server.name)).join(", ")}.`}</span></p>
    ${error && html`<${Problem} error=${error} />`}</section>`;
}
