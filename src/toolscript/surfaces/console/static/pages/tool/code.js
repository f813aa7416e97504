// How programs see the tool: its signature, its types in two languages, and its schemas.
import { send } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { LongText, visible } from "../../parts/text.js";

const TABS = [["signature", "Signature"], ["ts", "TypeScript"], ["py", "Python"], ["input", "Input"], ["output", "Output"]];

export function Code({ tool }) {
  const [tab, setTab] = useState("signature");
  const shown = TABS.filter(([name]) => name !== "output" || tool.outputSchema);
  const isClient = tab === "ts" || tab === "py";
  const text = { signature: tool.signature, input: JSON.stringify(tool.inputSchema, null, 2), output: JSON.stringify(tool.outputSchema, null, 2) }[tab];
  return html`<section class="card code" aria-label="Code">
    <div class="tabs" role="group" aria-label="Form">${shown.map(([name, title]) => html`
      <button type="button" key=${name} aria-pressed=${String(tab === name)} onClick=${() => setTab(name)}>${title}</button>`)}</div>
    <div class="code-text">${isClient ? html`<${Client} key=${tab} toolId=${tool.toolId} language=${tab} />` : html`<${LongText} mono value=${text} max=${6000} />`}</div>
  </section>`;
}

function Client({ toolId, language }) {
  const [text, setText] = useState(null);
  useEffect(() => {
    const control = new AbortController();
    send("GET", `/runtime/tools.${language}?${new URLSearchParams({ filter: toolId })}`, { signal: control.signal })
      .then((response) => response.text()).then(setText, (error) => control.signal.aborted || setText(error.message));
    return () => control.abort();
  }, [toolId, language]);
  if (text === null) return html`<p class="muted">Loading</p>`;
  // What follows is the same for every tool: how the client talks to the gateway.
  const own = text.split(/\n(?:async function callTool|class ToolCallError)/)[0].trim();
  return html`<${LongText} mono value=${own} max=${6000} />
    <p class="code-end"><a download=${`tools.${language}`} href=${`data:text/plain;charset=utf-8,${encodeURIComponent(visible(text))}`}>Save the whole client</a></p>`;
}
