import { send } from "../../core/api.js";
import { html } from "../../core/dom.js";
import { formatAgo, formatCount, plural } from "../../core/format.js";
import { useApi } from "../../core/hooks.js";
import { Empty, Loaded } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

const MAX_SHOWN = 500;

export function SourceList({ changes }) {
  const found = useApi("/api/v1/knowledge/sources", { version: changes });
  const remove = async (source) => {
    if (!confirm(`Remove “${visible(source.title).slice(0, 200)}” with its passages?`)) return;
    await send("DELETE", `/api/v1/knowledge/sources/${encodeURIComponent(source.id)}`);
    found.reload();
  };
  return html`<section class="section" aria-label="Sources"><div class="section-head"><h2>Sources</h2>${found.data && html`<span class="count">${plural(found.data.sources.length, "source")}</span>`}</div>
    <${Loaded} from=${found} rows=${5}>${({ sources }) => sources.length === 0 ? html`<${Empty} title="The library is empty">Drop a book or some notes above.</${Empty}>` : html`
      <div class="card table-scroll" tabindex="0"><table><thead><tr><th scope="col">Title</th><th scope="col">Authors</th><th scope="col">Kind</th><th scope="col" class="right">Passages</th><th scope="col">Added</th><th scope="col"><span class="unseen">Action</span></th></tr></thead>
        <tbody>${sources.slice(0, MAX_SHOWN).map((source) => html`<tr key=${source.id}>
          <td><${Text} value=${source.title} max=${120} />${source.status !== "ready" && html` <span class="tag warn"><${Text} value=${source.status} max=${40} /></span>`}</td>
          <td class="muted"><${Text} value=${source.authors.slice(0, 3).join(", ")} max=${80} /></td><td class="muted"><${Text} value=${source.type} max=${30} /></td>
          <td class="right">${formatCount(source.chunks)}</td><td class="nowrap muted" title=${source.ingested_at}>${formatAgo(source.ingested_at)}</td>
          <td class="right"><button type="button" class="button small" onClick=${() => remove(source)}>Remove</button></td></tr>`)}</tbody></table></div>`}</${Loaded}></section>`;
}
