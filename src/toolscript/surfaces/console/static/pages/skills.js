// Skills by domain, the tools in each, and the queue of suggestions to review.
import { html, useState } from "../core/dom.js";
import { plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { link } from "../core/router.js";
import { Empty, Loaded } from "../parts/states.js";
import { Text, visible } from "../parts/text.js";
import { Proposals } from "./skills/proposals.js";
import { Review } from "./skills/review.js";

const OTHER = "other";

export default function SkillsPage({ at }) {
  useTitle("Skills");
  const [chosen, setChosen] = useState(null);
  const skills = useApi("/api/v1/skills");
  const largest = skills.data?.skills.toSorted((a, b) => b.tool_count - a.tool_count)[0]?.id;
  return html`<div class="page-head"><h1>Skills</h1>${skills.data && html`<p>${plural(skills.data.total, "skill")}</p>`}</div>
    <${Loaded} from=${skills} rows=${10}>${(data) => html`
      <${Review} skills=${data.skills} first=${at.query.get("review")} onDecided=${skills.reload} />
      <div class="skills">
        <${Tree} skills=${data.skills} chosen=${chosen ?? largest} onChoose=${setChosen} />
        <${Chosen} skill=${data.skills.find((skill) => skill.id === (chosen ?? largest))} />
      </div>
      <${Proposals} />`}</${Loaded}>`;
}

function Tree({ skills, chosen, onChoose }) {
  if (!skills.length) return html`<${Empty} title="There are no skills">Propose some from the tools in the catalogue.</${Empty}>`;
  const domains = Map.groupBy([...skills].sort((a, b) => b.tool_count - a.tool_count), (skill) => skill.parent_domain || OTHER);
  const count = (list) => list.reduce((sum, skill) => sum + skill.tool_count, 0);
  const sorted = [...domains].sort(([, a], [, b]) => count(b) - count(a));
  const most = Math.max(...skills.map((skill) => skill.tool_count), 1);
  return html`<nav class="card tree" aria-label="Skills">${sorted.map(([domain, list]) => html`<details key=${domain} open=${count(list) > 0}>
    <summary><${Text} value=${domain.replaceAll("_", " ")} max=${60} /> <small>${plural(count(list), "tool")}</small></summary>
    <ul>${list.map((skill) => html`<li key=${skill.id}><button type="button" aria-pressed=${String(skill.id === chosen)} onClick=${() => onChoose(skill.id)}>
      <span><${Text} value=${skill.name} max=${80} />${!skill.is_active && html` <small>inactive</small>`}</span>
      <span class="bar" aria-hidden="true"><i class="of-plain" style=${{ width: `${(100 * skill.tool_count) / most}%` }}></i></span><small>${skill.tool_count}</small></button></li>`)}</ul>
  </details>`)}</nav>`;
}

function Chosen({ skill }) {
  const tools = useApi(skill ? `/api/v1/skills/${encodeURIComponent(skill.id)}/tools` : null);
  if (!skill) return html`<${Empty} title="Choose a skill">Its description and tools are shown here.</${Empty}>`;
  return html`<section class="card padded skill" aria-label=${visible(skill.name)}>
    <h2><${Text} value=${skill.name} max=${120} /></h2><p><code><${Text} value=${skill.id} max=${80} /></code></p>
    <p><${Text} value=${skill.description} max=${1000} /></p>
    ${skill.keywords.length > 0 && html`<p class="tags">${skill.keywords.slice(0, 24).map((word) => html`<span class="tag" key=${word}><${Text} value=${word} max=${40} /></span>`)}</p>`}
    <${Loaded} from=${tools} rows=${4}>${(data) => data.tools.length === 0 ? html`<p class="muted">No tool is in it.</p>` : html`
      <ul class="skill-tools">${data.tools.slice(0, 300).map((tool) => html`<li key=${tool.id}>
        <a class="mono" href=${link("tool", tool.id)}><${Text} value=${tool.name} max=${80} /></a> <small><${Text} value=${tool.server} max=${40} /></small>
        ${tool.origin === "human" && html`<span class="tag accent">by a person</span>`}<span class="right">${tool.confidence == null ? "" : tool.confidence.toFixed(2)}</span></li>`)}</ul>`}</${Loaded}>
  </section>`;
}
