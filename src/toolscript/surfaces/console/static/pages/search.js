// One box over tools, skills, documents and knowledge, and why each hit was found.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { link, replaceAddress } from "../core/router.js";
import { Icon } from "../parts/icons.js";
import { Empty } from "../parts/states.js";
import { Controls } from "./search/controls.js";
import { OtherHits } from "./search/other_hits.js";
import { Strategies } from "./search/strategies.js";
import { ToolHits } from "./search/tool_hits.js";

const VIEWS = [["all", "Everything"], ["compare", "Compare strategies"]];
const EXAMPLES = ["read a text file", "put my changes into version control", "what time is it in Tokyo", "send a message"];
const FALLBACK = { threshold: 0.35, alpha: 0.7, limit: 3 };

function readChoices(query) {
  const number = (name) => (query.has(name) ? Number(query.get(name)) : null);
  return { threshold: number("threshold"), alpha: number("alpha"), limit: number("limit") };
}

function moveFocus(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.target.type === "range") return;
  const box = document.getElementById("search-box");
  const stops = [box, ...document.querySelectorAll(".hit-name")];
  const next = stops[stops.indexOf(document.activeElement) + step];
  if (!next || !stops.includes(document.activeElement)) return;
  event.preventDefault();
  next.focus();
}

export default function SearchPage({ at }) {
  const [draft, setDraft] = useState(at.query.get("q") ?? "");
  // What was searched: each search is an event of the audit, so one is made with Enter, not with every letter.
  const [text, setText] = useState(draft);
  const [view, setView] = useState(at.query.get("view") ?? "all");
  const [choices, setChoices] = useState(readChoices(at.query));
  const stats = useApi("/search/stats");
  const box = useRef(null);
  const shown = useRef(at);
  const defaults = stats.data ?? FALLBACK;
  const query = text.trim();
  const search = (words) => {
    setDraft(words);
    setText(words);
  };
  useTitle(query ? `${query.slice(0, 60)}` : "Search");
  useEffect(() => box.current?.focus(), []);
  useEffect(() => {
    if (shown.current !== at) {
      search(at.query.get("q") ?? "");
      setView(at.query.get("view") ?? "all");
      setChoices(readChoices(at.query));
    }
    shown.current = at;
  }, [at]);
  useEffect(() => {
    replaceAddress(link("search", "", { q: text, view: view === "all" ? "" : view, ...choices }));
  }, [text, view, choices]);
  const used = {
    threshold: choices.threshold ?? defaults.threshold,
    alpha: choices.alpha ?? defaults.alpha,
    limit: choices.limit ?? defaults.limit,
  };
  return html`<div class="search" onKeyDown=${moveFocus}>
    <h1 class="unseen">Search</h1>
    <form class="search-form" role="search" onSubmit=${(event) => { event.preventDefault(); search(draft); }}>
      <${Icon} name="search" />
      <input id="search-box" ref=${box} type="search" aria-label="What should be found" autocomplete="off" spellcheck="false" maxlength="8000"
        placeholder="What do you need done?" value=${draft}
        onInput=${(event) => (event.target.value ? setDraft(event.target.value) : search(""))} onKeyDown=${(event) => event.key === "Escape" && search("")} />
      <kbd aria-hidden="true">/</kbd>
    </form>
    <div class="search-bar">
      <div class="choice" role="group" aria-label="View">${VIEWS.map(([name, title]) => html`
        <button type="button" key=${name} aria-pressed=${String(view === name)} onClick=${() => setView(name)}>${title}</button>`)}
      </div>
      ${stats.data && html`<p class="muted">${plural(stats.data.indexedTools, "tool")}, ${stats.data.model ?? "no model"}</p>`}
    </div>
    <${Controls} used=${used} defaults=${defaults} choices=${choices} onChange=${setChoices} />
    ${query === "" ? html`<${Empty} title="Ask as an agent would">Try ${EXAMPLES.map((example, i) => html`${i ? ", " : ""}
        <button type="button" class="linklike" key=${example} onClick=${() => { search(example); box.current.focus(); }}>${example}</button>`)}.</${Empty}>`
      : view === "compare" ? html`<${Strategies} query=${query} used=${used} />`
      : html`<${ToolHits} query=${query} used=${used} defaults=${defaults} /><${OtherHits} query=${query} />`}
  </div>`;
}
