// Skills, knowledge and documents for the same words.
import { signInNeeded } from "../../core/api.js";
import { html } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useDocumentsAllowed } from "../../core/hooks.js";
import { useLiveRequest } from "../../core/live_request.js";
import { NothingRelevant, Relevance } from "../../parts/relevance.js";
import { Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

const LIMIT = 4;
const MAX_QUERY = 1000;

export function OtherHits({ query }) {
  const areAllowed = useDocumentsAllowed();
  const words = query.slice(0, MAX_QUERY);
  const skills = useLiveRequest({ method: "GET", path: `/api/v1/search/skills?${new URLSearchParams({ query, limit: LIMIT })}` });
  const knowledge = useLiveRequest({ method: "POST", path: "/search_knowledge", body: { query: words, limit: LIMIT } });
  const documents = useLiveRequest(areAllowed ? { method: "POST", path: "/search", body: { query: words, top_k: LIMIT, highlight: true } } : null);
  return html`<div class="others">
    <${Section} title="Skills" found=${skills} list=${(data) => data} show=${showSkill} empty="No skill is like this request." />
    <${Section} title="Knowledge" found=${knowledge} list=${(data) => data.results} isForeign=${(data) => data.metadata.nothing_relevant} show=${showPassage} empty="No passage is like this request." />
    ${areAllowed !== false ? html`<${Section} title="Documents" found=${documents} list=${(data) => data.hits} isForeign=${(data) => data.nothing_relevant} show=${showDocument} empty="No document matches." />`
      : html`<section class="section" aria-label="Documents"><div class="section-head"><h2>Documents</h2></div>
          <p class="muted">Documents belong to a tenant. <button type="button" class="linklike" onClick=${() => signInNeeded.set({ message: "" })}>Sign in</button> to search them.</p></section>`}
  </div>`;
}

function Section({ title, found, list, show, empty, isForeign = () => false }) {
  const hits = found.data ? list(found.data) : [];
  return html`<section class="section" aria-label=${title} aria-busy=${String(found.loading)}>
    <div class="section-head"><h2>${title}</h2>${found.data && html`<span class="count">${hits.length || ""}</span>`}</div>
    ${found.error ? html`<${Problem} error=${found.error} />`
      : !found.data ? html`<p class="muted">${found.loading ? "Searching" : ""}</p>`
      : hits.length ? html`${isForeign(found.data) && html`<${NothingRelevant} />`}<ul class="hits card">${hits.map(show)}</ul>` : html`<p class="muted">${empty}</p>`}
  </section>`;
}

function showSkill(hit) {
  return html`<li class="hit slim" key=${hit.id}><div class="hit-body">
    <p class="hit-title"><span class="hit-label"><${Text} value=${hit.name} max=${120} /></span><span class="tag">${plural(hit.tool_count, "tool")}</span></p>
    <p class="hit-text"><${Text} value=${hit.description} max=${200} /></p></div><${Score} value=${hit.score} /></li>`;
}

function showPassage(hit) {
  const { title, authors, position } = hit.source;
  const where = [position.chapter, position.section, position.page != null && `p. ${position.page}`, position.line != null && `line ${position.line}`];
  return html`<li class="hit slim" key=${hit.id}><div class="hit-body">
    <p class="hit-title"><span class="hit-label"><${Text} value=${title} max=${120} /></span>${authors.length > 0 && html`<span class="muted"><${Text} value=${authors.join(", ")} max=${80} /></span>`}</p>
    <p class="hit-text passage"><${Text} value=${hit.content} max=${320} /></p>
    <p class="hit-where"><${Text} value=${[...new Set(where.filter(Boolean))].join(" · ")} max=${200} /></p></div><${Relevance} hit=${hit} /></li>`;
}

function showDocument(hit) {
  return html`<li class="hit slim" key=${hit.doc_id}><div class="hit-body">
    <p class="hit-title"><span class="hit-label mono"><${Text} value=${hit.doc_id} max=${120} /></span></p>
    ${hit.snippet && html`<p class="hit-text passage"><bdi>${highlight(hit.snippet)}</bdi></p>`}</div><${Relevance} hit=${hit} /></li>`;
}

/** The gateway puts ** around words of the query. */
export function highlight(snippet) {
  return snippet.split("**").map((part, i) => (i % 2 ? html`<mark key=${i}>${visible(part)}</mark>` : visible(part)));
}

function Score({ value }) {
  return html`<div class="hit-why narrow"><p><strong>${value.toFixed(2)}</strong></p>
    <div class="bar" aria-hidden="true"><i class="of-plain" style=${{ width: `${100 * Math.min(1, Math.max(0, value))}%` }}></i></div></div>`;
}
