// One tool: what it says of itself, how a program calls it, and a form to call it here.
import { html } from "../core/dom.js";
import { useApi, useTitle } from "../core/hooks.js";
import { link } from "../core/router.js";
import { Loaded } from "../parts/states.js";
import { LongText, Text, visible } from "../parts/text.js";
import { CallForm } from "./tool/call_form.js";
import { Code } from "./tool/code.js";
import { Override } from "./tool/override.js";
import { Quarantine } from "./tool/quarantine.js";

const HINTS = [
  ["readOnlyHint", "reads only", "good"],
  ["destructiveHint", "may destroy", "bad"],
  ["idempotentHint", "may be repeated", "good"],
  ["openWorldHint", "reaches other systems", "warn"],
];

export default function ToolPage({ at }) {
  const tool = useApi(`/tools/${encodeURIComponent(at.rest)}`);
  useTitle(at.rest);
  return html`
    <p class="crumbs"><a href=${link("search", "", { q: at.query.get("q") ?? "" })}>Search</a> / <a href=${link("tools")}>Tools</a></p>
    <${Loaded} from=${tool} rows=${8}>${(data) => html`<${Tool} key=${data.toolId} tool=${data} reload=${tool.reload} />`}</${Loaded}>`;
}

function Tool({ tool, reload }) {
  const annotations = tool.annotations ?? {};
  return html`
    <header class="tool-head">
      <h1 class="mono"><bdi>${visible(tool.toolName).slice(0, 300)}</bdi></h1>
      <p class="tags">
        <a class="tag accent" href=${link("tools", "", { server: tool.serverName })}><${Text} value=${tool.serverName} max=${80} /></a>
        ${tool.type !== "tool" && html`<span class="tag">${tool.type.replace("_", " ")}</span>`}
        ${HINTS.filter(([name]) => annotations[name] === true).map(([name, title, colour]) => html`<span key=${name} class=${`tag ${colour}`} title=${`The server says so (${name})`}>${title}</span>`)}
        ${tool.serverState === "asleep" && html`<span class="tag">asleep: the first call waits</span>`}
        ${tool.serverState?.startsWith("demo") && html`<span class="tag warn">${tool.serverState}</span>`}
        ${tool.serverState === "stopped" && html`<span class="tag warn">its server is stopped</span>`}
        ${tool.needsApproval && html`<span class="tag warn">each call needs an approval</span>`}
      </p>
    </header>
    ${tool.quarantined && html`<${Quarantine} toolId=${tool.toolId} reason=${tool.quarantined} onDecided=${reload} />`}
    <div class="tool-columns">
      <div class="tool-about">
        <section class="card padded" aria-label="Description">
          ${tool.title && html`<h2 class="tool-title"><${Text} value=${tool.title} max=${200} /></h2>`}
          <${LongText} value=${tool.description || "The server gives no description."} />
        </section>
        <${Code} tool=${tool} />
        ${tool.type === "tool" && !tool.serverState?.startsWith("demo") && html`<${Override} tool=${tool} />`}
      </div>
      <${CallForm} tool=${tool} />
    </div>`;
}
