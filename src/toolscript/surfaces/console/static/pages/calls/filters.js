import { html } from "../../core/dom.js";

const KINDS = [["calls", "Calls"], ["searches", "Searches"], ["refusals", "Refused requests"], ["servers", "Changes of servers"]];
const TIMES = [["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["", "all"]];
const OUTCOMES = [["", "all"], ["ok", "ok"], ["error", "errors"]];

export function CallFilters({ filters, onChange, onReset }) {
  const set = (name) => (event) => onChange({ ...filters, [name]: event.target.value });
  const select = (name, title, options) => html`<label class="field"><span>${title}</span><select value=${filters[name]} onChange=${set(name)}>
    ${options.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>`;
  const input = (name, title) => html`<label class="field"><span>${title}</span><input type="text" spellcheck="false" value=${filters[name]} onChange=${set(name)} /></label>`;
  return html`<div class="choice kinds" role="group" aria-label="Kind">${KINDS.map(([name, title]) => html`
      <button type="button" key=${name} aria-pressed=${String(filters.kind === name)} onClick=${() => onChange({ ...filters, kind: name })}>${title}</button>`)}</div>
    <div class="filters">${select("since", "Time", TIMES)}${select("outcome", "Outcome", OUTCOMES)}${input("server", "Server")}${input("tool", filters.kind === "servers" ? "Change" : "Tool")}${input("caller", "Caller")}
      <button type="button" class="button" onClick=${onReset}>All</button></div>`;
}
