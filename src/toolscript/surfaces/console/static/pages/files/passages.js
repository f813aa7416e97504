// Passages for a question, with the words marked and the place where they stand.
import { html, useState } from "../../core/dom.js";
import { useLiveRequest } from "../../core/live_request.js";
import { NothingRelevant, Relevance } from "../../parts/relevance.js";
import { Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";
import { highlight } from "../search/other_hits.js";

const LIMIT = 8;
const MAX_CHARACTERS = 900;

function buildRequest(library, query, isSection) {
  if (!query) return null;
  if (library === "documents") return { method: "POST", path: "/search", body: { query, top_k: LIMIT, highlight: true, snippet_max_chars: 600 } };
  return { method: "POST", path: "/search_knowledge", body: { query, limit: LIMIT, context: isSection ? "section" : "passage" } };
}

export function Passages({ library }) {
  const [query, setQuery] = useState("");
  const [isSection, setIsSection] = useState(false);
  const found = useLiveRequest(buildRequest(library, query.trim().slice(0, 1000), isSection));
  const hits = found.data?.results ?? found.data?.hits ?? [];
  const isForeign = found.data?.metadata?.nothing_relevant ?? found.data?.nothing_relevant;
  return html`<section class="section" aria-label="Passages"><div class="section-head"><h2>Passages</h2></div>
    <div class="filters"><label class="field grow"><span class="unseen">Question</span>
        <input type="text" placeholder="What do you want to know?" value=${query} onInput=${(event) => setQuery(event.target.value)} /></label>
      ${library === "knowledge" && html`<label class="field flag"><input type="checkbox" checked=${isSection} onChange=${(event) => setIsSection(event.target.checked)} /><span>With the section around</span></label>`}</div>
    ${found.error && html`<${Problem} error=${found.error} />`}
    ${found.data && (hits.length === 0 ? html`<p class="muted">Nothing was found.</p>` : html`${isForeign && html`<${NothingRelevant} />`}<ul class="hits card">${hits.map((hit) => (library === "documents"
      ? html`<${DocumentHit} key=${hit.doc_id} hit=${hit} />` : html`<${KnowledgeHit} key=${hit.id} hit=${hit} query=${query} />`))}</ul>`)}
  </section>`;
}

function markWords(text, query) {
  const words = query.split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 2).map((word) => word.replace(/[$()*+.?[\\\]^{|}]/g, "\\$&"));
  if (!words.length) return visible(text);
  return text.split(new RegExp(`(${words.join("|")})`, "iu")).map((part, i) => (i % 2 ? html`<mark key=${i}>${visible(part)}</mark>` : visible(part)));
}

function KnowledgeHit({ hit, query }) {
  const { title, authors, position } = hit.source;
  const place = [position.chapter, position.section, position.page != null && `page ${position.page}`, position.line != null && `line ${position.line}`].filter(Boolean);
  return html`<li class="hit slim"><div class="hit-body">
    <p class="passage-text"><bdi>${markWords(hit.content.slice(0, MAX_CHARACTERS), query)}${hit.content.length > MAX_CHARACTERS && "…"}</bdi></p>
    <p class="hit-where"><cite><${Text} value=${[authors.slice(0, 3).join(", "), title].filter(Boolean).join(", ")} max=${160} /></cite>${place.length > 0 && html` · <${Text} value=${[...new Set(place)].join(" · ")} max=${200} />`}
      ${hit.also_in && ` · also in ${hit.also_in.length} more`}</p></div>
    <${Relevance} hit=${hit} /></li>`;
}

function DocumentHit({ hit }) {
  return html`<li class="hit slim"><div class="hit-body"><p class="passage-text"><bdi>${highlight(hit.snippet ?? "")}</bdi></p>
    <p class="hit-where"><code><${Text} value=${hit.doc_id} max=${160} /></code></p></div><${Relevance} hit=${hit} /></li>`;
}
