// Knowledge and documents: what is there, new files by drag and drop, and the passages that answer a question.
import { credentials, signInNeeded } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { useTitle } from "../core/hooks.js";
import { useStore } from "../core/store.js";
import { Empty } from "../parts/states.js";
import { DocumentList } from "./files/documents.js";
import { DropArea } from "./files/drop_area.js";
import { Jobs } from "./files/jobs.js";
import { Passages } from "./files/passages.js";
import { SourceList } from "./files/sources.js";

const LIBRARIES = [
  ["knowledge", "Knowledge", "Books, papers and notes that everyone may search"],
  ["documents", "Documents", "Files of one tenant, which nobody else sees"],
];

export default function FilesPage({ at }) {
  useTitle("Files");
  const [library, setLibrary] = useState(at.query.get("as") === "documents" ? "documents" : "knowledge");
  const [changes, setChanges] = useState(0);
  const isSignedIn = Boolean(Object.values(useStore(credentials)).join(""));
  const changed = () => setChanges((n) => n + 1);
  const mayUse = library === "knowledge" || isSignedIn;
  return html`<div class="page-head"><h1>Files</h1><p>${LIBRARIES.find(([name]) => name === library)[2]}</p></div>
    <div class="choice kinds" role="group" aria-label="Library">${LIBRARIES.map(([name, title]) => html`
      <button type="button" key=${name} aria-pressed=${String(library === name)} onClick=${() => setLibrary(name)}>${title}</button>`)}</div>
    ${!mayUse ? html`<${Empty} title="Documents belong to a tenant">
        <button type="button" class="linklike" onClick=${() => signInNeeded.set({ message: "" })}>Sign in</button> with a key that has the scope documents, or with the token of a tenant.</${Empty}>`
      : html`<div key=${library}>
        <${DropArea} library=${library} onStarted=${changed} />
        <${Jobs} library=${library} changes=${changes} onDone=${changed} />
        <${Passages} library=${library} />
        ${library === "knowledge" ? html`<${SourceList} changes=${changes} />` : html`<${DocumentList} changes=${changes} />`}</div>`}`;
}
