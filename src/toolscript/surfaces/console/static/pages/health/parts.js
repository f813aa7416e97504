// What the gateway holds, what its caches save, and what searches had to do without.
import { html } from "../../core/dom.js";
import { formatCount, formatPercent, plural } from "../../core/format.js";
import { sum } from "../../core/metrics.js";
import { Text } from "../../parts/text.js";

const CACHES = {
  tool_requests: "Vectors of requests for tools",
  text_requests: "Vectors of requests for documents and knowledge",
  hierarchical_results: "Results of hierarchical searches",
};
const COLLECTIONS = {
  mcp_unified_search: "Tools, prompts, resources and agent skills",
  mcp_skills: "Skills",
  documents: "Passages of documents",
  chunks: "Passages of knowledge",
  extractions: "Extractions of knowledge",
};

export function Degraded({ metrics }) {
  const parts = (metrics.get("toolscript_degraded_total") ?? []).filter((sample) => sample.value > 0);
  if (!parts.length) return null;
  return html`<section class="section" aria-label="Degraded searches"><div class="section-head"><h2>Searches that had to do without a part</h2></div>
    <ul class="card rows padded">${parts.map(({ labels, value }) => html`<li key=${labels.what}><span class="tag warn"><${Text} value=${labels.what} max=${60} /></span> ${plural(value, "search", "searches")} since the start</li>`)}</ul></section>`;
}

export function IndexSizes({ metrics }) {
  const sizes = metrics.get("toolscript_index_points") ?? [];
  return html`<section class="section" aria-label="Index"><div class="section-head"><h2>Index</h2></div>
    <div class="card table-scroll"><table><thead><tr><th scope="col">Collection</th><th scope="col" class="right">Points</th></tr></thead>
      <tbody>${sizes.map(({ labels, value }) => html`<tr key=${labels.collection}><td title=${labels.collection}><${Text} value=${COLLECTIONS[labels.collection] ?? labels.collection} max=${60} /></td>
        <td class="right">${formatCount(value)}</td></tr>`)}</tbody></table></div></section>`;
}

export function Caches({ metrics }) {
  const names = [...new Set((metrics.get("toolscript_cache_lookups_total") ?? []).map((sample) => sample.labels.cache))];
  const rows = names.map((name) => {
    const count = (outcome) => sum(metrics, "toolscript_cache_lookups_total", (labels) => labels.cache === name && labels.outcome === outcome);
    return { name, hits: count("hit"), asked: count("hit") + count("miss") };
  });
  return html`<section class="section" aria-label="Caches"><div class="section-head"><h2>Caches</h2></div>
    <div class="card table-scroll"><table><thead><tr><th scope="col">What is kept</th><th scope="col" class="right">Lookups</th><th scope="col" class="right">Found</th></tr></thead>
      <tbody>${rows.map(({ name, hits, asked }) => html`<tr key=${name}><td><${Text} value=${CACHES[name] ?? name} max=${60} /></td>
        <td class="right">${formatCount(asked)}</td><td class="right">${asked ? formatPercent(hits / asked) : "–"}</td></tr>`)}</tbody></table></div></section>`;
}
