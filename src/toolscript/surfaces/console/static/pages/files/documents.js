import { html, useState } from "../../core/dom.js";
import { formatCount } from "../../core/format.js";
import { useApi } from "../../core/hooks.js";
import { Dialog } from "../../parts/dialog.js";
import { Empty, Loaded } from "../../parts/states.js";
import { LongText, Text } from "../../parts/text.js";

const PAGE = 100;

export function DocumentList({ changes }) {
  const [after, setAfter] = useState([]);
  const [chosen, setChosen] = useState(null);
  const given = { limit: PAGE, ...(after.length ? { after: after.at(-1) } : {}) };
  const found = useApi(`/documents?${new URLSearchParams(given)}`, { version: changes });
  return html`<section class="section" aria-label="Documents"><div class="section-head"><h2>Documents</h2></div>
    <${Loaded} from=${found} rows=${5}>${(data) => data.documents.length === 0 ? html`<${Empty} title="The tenant has no documents">Drop some files above.</${Empty}>` : html`
      <div class="card table-scroll" tabindex="0"><table><thead><tr><th scope="col">Id</th><th scope="col">Title</th><th scope="col" class="right">Characters</th></tr></thead>
        <tbody>${data.documents.map((each) => html`<tr key=${each.id}><td><button type="button" class="linklike mono" onClick=${() => setChosen(each.id)}><${Text} value=${each.id} max=${100} /></button></td>
          <td><${Text} value=${each.title} max=${120} /></td><td class="right">${formatCount(each.characters)}</td></tr>`)}</tbody></table></div>
      <p class="more"><button type="button" class="button" disabled=${!after.length} onClick=${() => setAfter(after.slice(0, -1))}>Back</button>${" "}
        <button type="button" class="button" disabled=${!data.next} onClick=${() => setAfter([...after, data.next])}>More</button></p>`}</${Loaded}>
    <${Dialog} isOpen=${chosen !== null} onClose=${() => setChosen(null)} title="Document">${chosen && html`<${Document} id=${chosen} />`}</${Dialog}></section>`;
}

function Document({ id }) {
  const found = useApi(`/documents/${id.split("/").map(encodeURIComponent).join("/")}`);
  return html`<${Loaded} from=${found}>${(data) => html`<h3><${Text} value=${data.title} max=${200} /></h3><p class="muted"><code><${Text} value=${data.id} max=${200} /></code></p><${LongText} value=${data.text} max=${4000} />`}</${Loaded}>`;
}
