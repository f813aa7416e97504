// What the configuration changes of a tool: its name, its description, whether it is hidden, and arguments that it fixes.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAction, useApi } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Loaded, Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

export function Override({ tool }) {
  const [isOpen, setIsOpen] = useState(false);
  return html`<details class="card padded override" onToggle=${(event) => setIsOpen(event.target.open)}>
    <summary>Change it for all callers</summary>
    ${isOpen && html`<${Editor} tool=${tool} />`}
  </details>`;
}

function Editor({ tool }) {
  const found = useApi(`/api/v1/overrides/${encodeURIComponent(tool.toolId)}`);
  return html`<${Loaded} from=${found}>${(data) => html`<${Form} key=${data.tool_id} data=${data} tool=${tool} />`}</${Loaded}>`;
}

function Form({ data, tool }) {
  const [override, setOverride] = useState(data.override);
  const [written, setWritten] = useState(null);
  const [save, { busy, error }] = useAction(async () => {
    const path = `/api/v1/overrides/${encodeURIComponent(written?.override.hidden ? `${data.server}__${data.tool}` : written?.tool_id ?? tool.toolId)}`;
    setWritten(await ask("PUT", path, { body: { override: clean(override) } }));
  });
  const set = (name, value) => { setOverride({ ...override, [name]: value }); };
  const setArgument = (name, value) => set("arguments", { ...override.arguments, [name]: value });
  return html`<form class="form" onSubmit=${(event) => { event.preventDefault(); save(); }}>
    <p class="muted">Its server calls it <code><bdi>${visible(data.tool)}</bdi></code>. What is empty stays as the server has it.</p>
    <label class="field"><span>Name</span><input type="text" value=${override.name ?? ""} placeholder=${visible(data.tool)} onInput=${(event) => set("name", event.target.value.trim())} /></label>
    <label class="field"><span>Description</span><textarea rows="3" value=${override.description ?? ""} onInput=${(event) => set("description", event.target.value)}></textarea></label>
    <label class="field flag"><input type="checkbox" checked=${override.hidden === true} onChange=${(event) => set("hidden", event.target.checked)} /><span>Hide the tool from all callers</span></label>
    ${data.arguments.map((name) => html`<${Argument} key=${name} name=${name} own=${tool.inputSchema?.properties?.[name]} value=${override.arguments?.[name] ?? {}} onChange=${(value) => setArgument(name, value)} />`)}
    ${error && html`<${Problem} error=${error} />`}
    <div role="status">${written && !error && html`<p class="state good">Written to ${visible(written.file)}. The gateway connects the server again${written.override.hidden
      ? ": the tool is hidden then." : html`, and the tool is <a href=${link("tool", written.tool_id)}><${Text} value=${written.tool_id} max=${140} /></a>.`}</p>`}</div>
    <div class="form-end"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Writing" : "Write to the configuration"}</button></div>
  </form>`;
}

function Argument({ name, own, value, onChange }) {
  const isText = own?.type === "string" || typeof value.default === "string";
  const [text, setText] = useState(value.default === undefined ? "" : isText ? value.default : JSON.stringify(value.default));
  const write = (event) => {
    setText(event.target.value);
    onChange({ ...value, default: event.target.value === "" ? undefined : isText ? event.target.value : readValue(event.target.value) });
  };
  return html`<fieldset class="field"><legend class="mono"><bdi>${visible(name).slice(0, 120)}</bdi></legend>
    <label class="field"><span>${value.hidden ? "Value of each call" : "Value, if the caller gives none"}</span><input type="text" spellcheck="false" value=${text} placeholder=${isText ? "" : "text or JSON"} onInput=${write} /></label>
    <label class="field flag"><input type="checkbox" checked=${value.hidden === true} onChange=${(event) => onChange({ ...value, hidden: event.target.checked })} /><span>Callers neither see nor set it</span></label>
    ${!value.hidden && html`<label class="field"><span>Description</span><input type="text" value=${value.description ?? ""} onInput=${(event) => onChange({ ...value, description: event.target.value })} /></label>`}
  </fieldset>`;
}

function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The override without what is empty. */
function clean(value) {
  const kept = Object.entries(value).map(([name, each]) => [name, name === "default" || !each || typeof each !== "object" || Array.isArray(each) ? each : clean(each)])
    .filter(([name, each]) => each !== undefined && each !== false || name === "default" && each === false)
    .filter(([name, each]) => name === "default" || each !== "" && !(typeof each === "object" && !Object.keys(each).length));
  return Object.fromEntries(kept);
}
