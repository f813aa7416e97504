// Takes files by drag and drop, or from the file dialog, and starts a job.
import { ask } from "../../core/api.js";
import { html, useRef, useState } from "../../core/dom.js";
import { plural } from "../../core/format.js";
import { useAction } from "../../core/hooks.js";
import { Problem } from "../../parts/states.js";

export function DropArea({ library, onStarted }) {
  const [isOver, setIsOver] = useState(false);
  const input = useRef(null);
  const [upload, { busy, error }] = useAction(async (files) => {
    if (!files.length) return;
    const form = new FormData();
    for (const file of files) form.append("file", file, file.webkitRelativePath || file.name);
    await ask("POST", `/api/v1/ingest?${new URLSearchParams({ as: library })}`, { body: form });
    onStarted();
  });
  const drop = (event) => {
    event.preventDefault();
    setIsOver(false);
    upload([...event.dataTransfer.files]);
  };
  return html`<div class=${isOver ? "drop over" : "drop"} onDragOver=${(event) => { event.preventDefault(); setIsOver(true); }} onDragLeave=${() => setIsOver(false)} onDrop=${drop}>
      <p>${busy ? "Sending the files" : `Drop files here to add them to the ${library}`}</p>
      <input ref=${input} class="unseen" type="file" multiple aria-label="Files to add" tabindex="-1" onChange=${(event) => { upload([...event.target.files]); event.target.value = ""; }} />
      <button type="button" class="button" disabled=${busy} onClick=${() => input.current.click()}>Choose files</button>
      <p class="muted">Text, Markdown, PDF, EPUB, office files, e-mail, source code, and more; ${plural(256, "MiB", "MiB")} together.</p>
    </div>${error && html`<${Problem} error=${error} />`}`;
}
