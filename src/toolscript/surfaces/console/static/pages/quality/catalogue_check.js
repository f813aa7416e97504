// The tools that searches mistake for each other, and descriptions that may help, to be copied.
import { ask } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { link } from "../../core/router.js";
import { Problem } from "../../parts/states.js";
import { LongText, Text } from "../../parts/text.js";

const PATH = "/api/v1/catalogue/check";
const PROPOSALS = 5;
const MAX_SHOWN = 100;
const MAX_TOOLS = 4;

export function CatalogueCheck() {
  const [report, setReport] = useState(null);
  const [run, { busy, error }] = useAction(async (proposals) => setReport(await ask("GET", `${PATH}?proposals=${proposals}`)));
  return html`<section class="section" aria-label="Catalogue"><div class="section-head"><h2>Catalogue</h2></div>
    <p class="muted">Tools that searches mistake for each other, by their texts and by recorded requests. Nothing is changed. A language model, if one is configured, is shown definitions and recorded requests, and proposes descriptions.</p>
    <div class="form-end section"><button type="button" class="button" disabled=${busy} onClick=${() => run(PROPOSALS)}>Propose descriptions</button>
      <button type="button" class="button" disabled=${busy} onClick=${() => run(0)}>${busy ? "Checking" : "Check"}</button></div>
    <div role="status">${error && html`<${Problem} error=${error} />`}${report && html`<p>${plural(report.tools, "tool")} and ${plural(report.requests, "recorded request")}: ${plural(report.errors, "error")}, ${plural(report.notes, "note")}.</p>`}</div>
    ${report?.findings.length > 0 && html`<${Findings} findings=${report.findings} />`}
    ${report?.proposals.map((each) => html`<${Proposal} key=${each.tool_id} proposal=${each} />`)}</section>`;
}

function Findings({ findings }) {
  const sorted = [...findings].sort((a, b) => (a.level === b.level ? 0 : a.level === "error" ? -1 : 1));
  return html`<div class="card table-scroll" tabindex="0"><table class="wrapped"><thead><tr><th scope="col">Level</th><th scope="col">Tools</th><th scope="col">Finding</th></tr></thead>
    <tbody>${sorted.slice(0, MAX_SHOWN).map((each, place) => html`<tr key=${place}><td><span class=${each.level === "error" ? "tag bad" : "tag"}>${each.level}</span></td>
      <td>${each.tools.slice(0, MAX_TOOLS).map((id) => html`<div key=${id}><a class="mono" href=${link("tool", id)}><${Text} value=${id} max=${80} /></a></div>`)}
        ${each.tools.length > MAX_TOOLS && `and ${each.tools.length - MAX_TOOLS} more`}</td>
      <td class="muted"><${Text} value=${each.text} max=${400} /></td></tr>`)}</tbody></table></div>
    ${findings.length > MAX_SHOWN && html`<p class="muted">And ${findings.length - MAX_SHOWN} more: toolscript catalogue check --json has all.</p>`}`;
}

function Proposal({ proposal }) {
  const figures = proposal.r5_after === null ? "" : `R@5 ${proposal.r5_before.toFixed(2)} → ${proposal.r5_after.toFixed(2)} on ${plural(proposal.measured_on, "held-out request")}`;
  return html`<div class="section"><p><span class="mono"><${Text} value=${proposal.tool_id} max=${80} /></span> <span class="muted"><${Text} value=${figures || proposal.reason} max=${200} /></span></p>
    ${proposal.override && html`<${LongText} mono value=${JSON.stringify(proposal.override, null, 2)} max=${2000} />`}</div>`;
}
