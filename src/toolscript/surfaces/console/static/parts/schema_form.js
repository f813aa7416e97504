// A form made from a JSON schema. What it has no field for is written as JSON.
import { html } from "../core/dom.js";
import { Text, visible } from "./text.js";

const MAX_FIELDS = 100;
const KINDS = new Map([["string", "text"], ["number", "number"], ["integer", "number"], ["boolean", "flag"]]);

export function listFields(schema) {
  const required = new Set(asList(schema?.required));
  return Object.entries(schema?.properties ?? {}).slice(0, MAX_FIELDS)
    .map(([name, own]) => ({ name, own: own && typeof own === "object" ? own : {}, isRequired: required.has(name), kind: findKind(own) }));
}

function findKind(own) {
  if (Array.isArray(own?.enum)) return "choice";
  const options = asList(own?.anyOf ?? own?.oneOf).filter((each) => each?.type !== "null");
  if (!own?.type && options.length === 1) return findKind(options[0]);
  const type = Array.isArray(own?.type) ? own.type.find((each) => each !== "null") : own?.type;
  return KINDS.get(type) ?? "json";
}

// Schemas come from servers, which may write anything.
function asList(value) {
  return Array.isArray(value) ? value : [];
}

// A field may be called `constructor` or `__proto__`, which every object has already.
function read(values, name) {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}

export function startValues(schema) {
  const shown = (kind, value) => (kind === "json" ? JSON.stringify(value, null, 2) : kind === "flag" ? value : String(value));
  return Object.fromEntries(listFields(schema).filter(({ own }) => own.default != null).map(({ name, own, kind }) => [name, shown(kind, own.default)]));
}

/** The arguments that the form holds; empty fields are left out unless required. Throws for text that is not valid. */
export function collectArguments(schema, values) {
  const given = Object.create(null);
  for (const { name, own, kind, isRequired } of listFields(schema)) {
    const value = read(values, name);
    if (value === undefined || value === "") {
      if (isRequired && kind === "text") given[name] = "";
    } else if (kind === "number") given[name] = Number(value);
    else if (kind === "choice") given[name] = own.enum.find((each) => String(each) === value);
    else if (kind === "json") given[name] = parse(name, value);
    else given[name] = value;
  }
  return given;
}

function parse(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: ${error.message}. Write it as JSON.`);
  }
}

export function SchemaForm({ schema, values, onChange }) {
  const fields = listFields(schema);
  if (!fields.length) return html`<p class="muted">It takes no arguments.</p>`;
  return fields.map((field) => html`<${Field} key=${field.name} field=${field} value=${read(values, field.name)} onChange=${(value) => onChange({ ...values, [field.name]: value })} />`);
}

function Field({ field, value, onChange }) {
  const { name, own, kind, isRequired } = field;
  const label = html`<span class="mono"><bdi>${visible(name).slice(0, 120)}</bdi>${isRequired && html`<span class="needed" title="required"> required</span>`}</span>`;
  const help = own.description && html`<small><${Text} value=${own.description} max=${300} /></small>`;
  const write = (event) => onChange(event.target.value);
  if (kind === "flag") {
    return html`<label class="field flag"><input type="checkbox" checked=${value === true} onChange=${(event) => onChange(event.target.checked)} />${label}${help}</label>`;
  }
  return html`<label class="field">${label}
    ${kind === "choice" ? html`<select value=${value ?? ""} onChange=${write} required=${isRequired}><option value=""></option>
        ${own.enum.slice(0, 500).map((each) => html`<option key=${String(each)} value=${String(each)}>${visible(each).slice(0, 200)}</option>`)}</select>`
      : kind === "number" ? html`<input type="number" step="any" min=${own.minimum} max=${own.maximum} value=${value ?? ""} onInput=${write} required=${isRequired} />`
      : kind === "json" ? html`<textarea rows="3" spellcheck="false" placeholder="JSON" value=${value ?? ""} onInput=${write} required=${isRequired}></textarea>`
      : html`<textarea class="line" rows=${(value ?? "").includes("\n") ? 4 : 1} spellcheck="false" value=${value ?? ""} onInput=${write}></textarea>`}
    ${help}</label>`;
}
