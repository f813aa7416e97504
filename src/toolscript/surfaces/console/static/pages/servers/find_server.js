// Finds servers that are not connected, in the registries that were read.
import { html, useState } from "../../core/dom.js";
import { useApi } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";
import { Text, visible } from "../../parts/text.js";

export function FindServer() {
  const [text, setText] = useState("");
  const [query, setQuery] = useState("");
  const found = useApi(query && `/api/v1/registry/search?q=${encodeURIComponent(query)}`);
  const submit = (event) => {
    event.preventDefault();
    setQuery(text.trim());
  };
  return html`<section class="section" aria-label="Find a server that is not connected"><div class="section-head"><h2>Find a server that is not connected</h2></div>
    <p class="muted">Searches in the registries that <code>toolscript registry sync</code> has read. Nothing is sent anywhere, and nothing is installed.</p>
    <form class="actions" role="search" onSubmit=${submit}>
      <input type="search" aria-label="What the server should do" placeholder="post to a channel" value=${text} onInput=${(event) => setText(event.target.value)} />
      <button type="submit" class="button" disabled=${!text.trim() || found.loading}>Find</button></form>
    <div aria-live="polite">${query && found.error && html`<${Refusal} error=${found.error} />`}
      ${query && found.data && !found.error && (found.data.servers.length
        ? html`<ul class="card padded planned">${found.data.servers.map((server) => html`<${Found} key=${server.name + server.registry} server=${server} />`)}</ul>`
        : html`<p class="muted">No server of the registries fits.</p>`)}</div></section>`;
}

/** What one can do about it is no alarm. */
function Refusal({ error }) {
  if (error.status !== 400 && error.status !== 404) return html`<${Problem} error=${error} />`;
  return html`<p class="note"><bdi>${visible(error.message)}</bdi></p>`;
}

function Found({ server }) {
  const launch = server.launches[0];
  return html`<li>
    <p><strong><${Text} value=${server.name} max=${200} /></strong> <span class="tag">${visible(server.version)}</span>
      ${server.status !== "active" && html` <span class="tag bad">${visible(server.status)}</span>`}</p>
    <p><${Text} value=${server.description} max=${300} /></p>
    ${launch && html`<p class="mono planned-runs"><bdi>${visible(launch.runs)}</bdi></p>`}
    ${launch?.needs && html`<p class="muted"><bdi>${visible(launch.needs)}</bdi></p>`}
    ${launch?.problem && html`<p class="planned-problem"><bdi>${visible(launch.problem)}</bdi></p>`}
    <p class="muted">by <bdi>${visible(server.publisher)}</bdi>, listed at <bdi>${visible(server.registry)}</bdi>, <code>${visible(server.digest.slice(0, 19))}</code></p>
    ${launch && !launch.problem && html`<p class="muted">To add it, after a question: <code><bdi>${visible(`toolscript servers add ${server.name}`)}</bdi></code></p>`}
  </li>`;
}
