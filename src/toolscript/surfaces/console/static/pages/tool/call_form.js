// Calls the tool with what the form holds, and shows the answer.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { formatMs } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { Answer } from "../../parts/answer.js";
import { SchemaForm, collectArguments, startValues } from "../../parts/schema_form.js";
import { Problem } from "../../parts/states.js";

export function CallForm({ tool }) {
  const [isRaw, setIsRaw] = useState(false);
  const [values, setValues] = useState(() => startValues(tool.inputSchema));
  const [raw, setRaw] = useState("{}");
  const [answer, setAnswer] = useState(null);
  const [call, { busy, error }] = useAction(async () => {
    setAnswer(null);
    const given = isRaw ? JSON.parse(raw) : collectArguments(tool.inputSchema, values);
    const started = performance.now();
    const value = await ask("POST", `/tools/${encodeURIComponent(tool.toolId)}`, { body: given });
    setAnswer({ value, ms: performance.now() - started });
  });
  const cause = tool.type === "agent_skill" ? "Agents read it with read_skill, a terminal shows it with toolscript read-agent-skill."
    : tool.type !== "tool" ? `A ${tool.type} is used over MCP.`
    : tool.quarantined ? "It is in quarantine." : tool.needsApproval ? "A person has to approve each call, in the agent's client." : "";
  const change = () => {
    if (!isRaw) {
      try {
        setRaw(JSON.stringify(collectArguments(tool.inputSchema, values), null, 2));
      } catch { /* the text of a field is not valid yet */ }
    }
    setIsRaw(!isRaw);
  };
  return html`<section class="card padded call" aria-label="Call">
    <div class="call-head"><h2>Call it</h2><button type="button" class="button small" onClick=${change}>${isRaw ? "As a form" : "As JSON"}</button></div>
    ${cause ? html`<p class="muted">${cause}</p>` : html`<form class="form" onSubmit=${(event) => { event.preventDefault(); call(); }}>
      ${isRaw ? html`<label class="field"><span>Arguments</span><textarea rows="8" spellcheck="false" value=${raw} onInput=${(e) => setRaw(e.target.value)}></textarea></label>`
        : html`<${SchemaForm} schema=${tool.inputSchema} values=${values} onChange=${setValues} />`}
      <div class="form-end"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Calling" : "Call"}</button></div>
    </form>`}
    <div role="status" class="call-answer">
      ${error && html`<${Problem} error=${error} />`}
      ${answer && html`<h3>Answer <span class="muted">after ${formatMs(answer.ms)}</span></h3><${Answer} value=${answer.value} />`}
    </div>
  </section>`;
}
