// The latest ingest jobs and how far they are.
import { ask } from "../../core/api.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { formatAgo, formatBytes, plural } from "../../core/format.js";
import { useApi } from "../../core/hooks.js";
import { Loaded, Problem } from "../../parts/states.js";
import { Text } from "../../parts/text.js";

const EVERY_MS = 1000;

export function Jobs({ library, changes, onDone }) {
  const found = useApi(`/api/v1/jobs?${new URLSearchParams({ as: library, limit: 5 })}`, { every: EVERY_MS, version: changes });
  const running = (found.data?.jobs ?? []).filter((job) => job.state === "running").length;
  const before = useRef(0);
  useEffect(() => {
    if (running < before.current) onDone();
    before.current = running;
  }, [running]);
  if (found.error) return html`<section class="section"><${Problem} error=${found.error} /></section>`;
  if (!found.data?.jobs.length) return null;
  return html`<section class="section" aria-label="Jobs"><div class="section-head"><h2>Latest files</h2></div>
    <ul class="card rows">${found.data.jobs.map((job) => html`<${Job} key=${job.id} job=${job} onChanged=${found.reload} />`)}</ul></section>`;
}

function Job({ job, onChanged }) {
  const [isOpen, setIsOpen] = useState(false);
  const files = { total: 0, done: 0, failed: 0, cancelled: 0, ...job.files };  // numbers that are zero are left out
  const skipped = Object.entries(job.skipped);
  const finished = files.done + files.failed + files.cancelled;
  const share = files.total ? finished / files.total : 0;
  const act = async (action) => {
    await ask("POST", `/api/v1/jobs/${encodeURIComponent(job.id)}/${action}`);
    onChanged();
  };
  return html`<li class="job">
    <p class="job-head"><span class=${`dot ${job.state === "running" ? "warn" : files.failed ? "bad" : "ok"}`}></span>
      <span>${plural(files.total, "file")}, ${formatBytes(job.bytes)}</span>
      <span class="muted">${job.state === "running" ? `${finished} of ${files.total} done` : `${job.state} ${formatAgo(job.created)}`}${files.failed > 0 && `, ${files.failed} failed`}${skipped.length > 0 && html`<span title=${skipped.map(([reason, number]) => `${number} (${reason})`).join(", ")}>, ${skipped.reduce((sum, [, number]) => sum + number, 0)} skipped</span>`}</span>
      <span class="job-end">
        ${job.state === "running" && html`<button type="button" class="button small" onClick=${() => act("cancel")}>Cancel</button>`}
        ${job.state !== "running" && (files.failed > 0 || files.cancelled > 0) && html`<button type="button" class="button small" onClick=${() => act("resume")}>Try again</button>`}
        <button type="button" class="button small" aria-expanded=${String(isOpen)} onClick=${() => setIsOpen(!isOpen)}>Files</button></span></p>
    ${job.state === "running" && html`<div class="bar" role="progressbar" aria-label="Files done" aria-valuenow=${Math.round(100 * share)} aria-valuemin="0" aria-valuemax="100"><i class="of-plain" style=${{ width: `${100 * share}%` }}></i></div>`}
    ${isOpen && html`<${JobFiles} job=${job} />`}
  </li>`;
}

function JobFiles({ job }) {
  const found = useApi(`/api/v1/jobs/${encodeURIComponent(job.id)}/files?limit=100`, { every: job.state === "running" ? EVERY_MS : 0 });
  return html`<${Loaded} from=${found} rows=${2}>${(data) => html`<ul class="job-files">${data.files.map((file) => html`<li key=${file.number}>
    <span class=${`tag ${{ done: "good", failed: "bad" }[file.state] ?? ""}`}>${file.state}</span> <${Text} value=${file.title || file.name} max=${120} />
    <small>${file.passages > 0 && plural(file.passages, "passage")}${file.state === "running" && file.steps > 0 && ` ${file.steps_done} of ${file.steps}`}</small>
    ${file.problem && html`<p class="muted"><${Text} value=${file.problem} max=${400} /></p>`}</li>`)}</ul>`}</${Loaded}>`;
}
