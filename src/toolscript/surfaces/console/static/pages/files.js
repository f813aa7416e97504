// Knowledge and documents: what is there, new files by drag and drop, and the passages that answer a question.
import { signInNeeded } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { useDocumentsAllowed, useTitle } from "../core/hooks.js";
import { Empty, Loading } from "../parts/states.js";
import { DocumentList } from "./files/documents.js";
import { DropArea } from "./files/drop_area.js";
import { Jobs } from "./files/jobs.js";
import { Passages } from "./files/passages.js";
import { SourceList } from "./files/sources.js";

const LIBRARIES = [
  ["knowledge", "Knowledge", "Books, papers and notes for all who may search knowledge"],
  ["documents", "Documents", "Your files, or those of the tenant whose key you have: no other tenant sees them"],
];

export default function FilesPage({ at }) {
  useTitle("Files");
  const [library, setLibrary] = useState(at.query.get("as") === "documents" ? "documents" : "knowledge");
  const [changes, setChanges] = useState(0);
  const areAllowed = useDocumentsAllowed();
  const changed = () => setChanges((n) => n + 1);
  const mayUse = library === "knowledge" || areAllowed;
  return html`<div class="page-head"><h1>Files</h1><p>${LIBRARIES.find(([name]) => name === library)[2]}</p></div>
    <div class="choice kinds" role="group" aria-label="Library">${LIBRARIES.map(([name, title]) => html`
      <button type="button" key=${name} aria-pressed=${String(library === name)} onClick=${() => setLibrary(name)}>${title}</button>`)}</div>
    ${mayUse === null ? html`<${Loading} />` : !mayUse ? html`<${Empty} title="Documents belong to a tenant">
        <button type="button" class="linklike" onClick=${() => signInNeeded.set({ message: "" })}>Sign in</button> with a key that has the scope documents, or with the token of a tenant.</${Empty}>`
      : html`<div key=${library}>
        <${DropArea} library=${library} onStarted=${changed} />
        <${Jobs} library=${library} changes=${changes} onDone=${changed} />
        <${Passages} library=${library} />
        ${library === "knowledge" ? html`<${SourceList} changes=${changes} />` : html`<${DocumentList} changes=${changes} />`}</div>`}`;
}
