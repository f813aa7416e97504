// What an agent's client needs to use this gateway.
import { html, useState } from "../../core/dom.js";

const FORMS = [
  ["http", "Over HTTP", () => ({ mcpServers: { toolscript: { type: "http", url: `${location.origin}/mcp` } } })],
  ["stdio", "On this machine", () => ({ mcpServers: { toolscript: { command: "toolscript", args: ["mcp"] } } })],
];

export function AgentConfiguration() {
  const [form, setForm] = useState("http");
  const [copied, setCopied] = useState("");
  const text = JSON.stringify(FORMS.find(([name]) => name === form)[2](), null, 2);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied("Copied");
    } catch {
      setCopied("The browser does not allow it: mark the text and copy it");
    }
  };
  return html`<section class="section" aria-label="Configuration of an agent">
    <div class="section-head"><h2>Configuration of an agent</h2></div>
    <p class="muted"><code>toolscript setup</code> writes it for the clients that it finds. By hand:</p>
    <div class="card snippet">
      <div class="snippet-head"><div class="choice" role="group" aria-label="Transport">${FORMS.map(([name, title]) => html`
        <button type="button" key=${name} aria-pressed=${String(form === name)} onClick=${() => { setForm(name); setCopied(""); }}>${title}</button>`)}</div>
        <span role="status" class="muted">${copied}</span><button type="button" class="button small" onClick=${copy}>Copy</button></div>
      <pre tabindex="0">${text}</pre>
    </div>
    ${form === "http" && html`<p class="muted">Where the gateway requires a key, the client sends it as <code>Authorization: Bearer KEY</code>.</p>`}
  </section>`;
}
