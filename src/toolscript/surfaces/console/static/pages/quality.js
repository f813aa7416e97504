// How well searches find the tools of this catalogue, by requests whose right tools are known.
import { html, useRef, useState } from "../core/dom.js";
import { formatPercent, plural } from "../core/format.js";
import { useAction, useApi, useTitle } from "../core/hooks.js";
import { link } from "../core/router.js";
import { Empty, Problem } from "../parts/states.js";
import { Text } from "../parts/text.js";
import { CatalogueCheck } from "./quality/catalogue_check.js";
import { Curve } from "./quality/curve.js";
import { buildCurve, isAnswered, measure, parseQueries, share } from "./quality/measure.js";

const STORED = "toolscript.queries";
const METRICS = [["hit@1", "Hit@1", "the right tool comes first"], ["r@5", "R@5", "share of the right tools among the first five"], ["ndcg@10", "NDCG@10", "how far up the right tools are"]];
const EXAMPLE = "read the notes in a text file => filesystem__read_text_file\nwhat changed in the repository => git__git_diff, git__git_log";

function readStored() {
  try {
    return localStorage.getItem(STORED) ?? "";
  } catch {
    return "";
  }
}

function save(name, lines) {
  const element = document.createElement("a");
  element.download = name;
  element.href = URL.createObjectURL(new Blob([lines.map((line) => JSON.stringify(line)).join("\n"), "\n"], { type: "application/jsonl" }));
  element.click();
  setTimeout(() => URL.revokeObjectURL(element.href), 1000);
}

export default function QualityPage() {
  useTitle("Quality");
  const [text, setText] = useState(readStored);
  const [done, setDone] = useState(0);
  const [results, setResults] = useState(null);
  const stats = useApi("/search/stats");
  const control = useRef(null);
  const write = (value) => {
    setText(value);
    try {
      localStorage.setItem(STORED, value);
    } catch { /* it lasts until the page is left */ }
  };
  const [run, { busy, error }] = useAction(async () => {
    const queries = parseQueries(text);
    if (!queries.length) throw new Error("Write some requests first.");
    setResults(null);
    setDone(0);
    control.current = new AbortController();
    setResults(await measure(queries, control.current.signal, setDone));
  });
  const [keep, keeping] = useAction(async () => save("queries.jsonl", parseQueries(text)));
  const drop = async (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) write(await file.text());
  };
  return html`<div class="page-head"><h1>Quality</h1><p>Does a search find the right tool of your catalogue?</p></div>
    <form class="form" onSubmit=${(event) => { event.preventDefault(); run(); }} onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      <label class="field"><span>Requests and the tools that serve them</span>
        <textarea rows="8" spellcheck="false" placeholder=${EXAMPLE} value=${text} onInput=${(event) => write(event.target.value)}></textarea>
        <small>One a line: the request, =>, ids of tools; nothing after => for a request that no tool serves. Or drop a queries.jsonl here. It is kept in this browser.</small></label>
      <div class="form-end"><button type="button" class="button" disabled=${!text.trim()} onClick=${keep} title="queries.jsonl: put it into a folder, and run toolscript eval --live on it">Save for toolscript eval</button>
        <button type="submit" class="button primary" disabled=${busy || !text.trim()}>${busy ? `${done} measured` : "Measure"}</button></div>
    </form>
    <div role="status">${(error ?? keeping.error) && html`<${Problem} error=${error ?? keeping.error} />`}</div>
    ${results ? html`<${Results} results=${results} threshold=${stats.data?.threshold ?? 0.35} />` : html`<section class="section"><${Empty} title="Ten requests already say something">Write them as your agent would ask, and measure.</${Empty}></section>`}
    <${CatalogueCheck} />`;
}

function Results({ results, threshold }) {
  const [served, others] = [results.filter((each) => each.scores), results.filter((each) => !each.scores)];
  const mean = (name) => (served.length ? (served.reduce((sum, each) => sum + each.scores[name], 0) / served.length).toFixed(3) : "–");
  const empty = share(others, (each) => !isAnswered(each, threshold));
  const judge = (each) => (each.scores ? each.scores["ndcg@10"] : Number(!isAnswered(each, threshold)));
  return html`<section class="section" aria-label="Results">
    <div class="figures">${METRICS.map(([name, title, help]) => html`<div class="card figure" key=${name} title=${help}><p class="figure-title">${title}</p><p class="figure-value">${mean(name)}</p><p class="muted">${help}</p></div>`)}
      <div class="card figure"><p class="figure-title">Requests</p><p class="figure-value">${served.length}</p><p class="muted">${plural(served.filter((each) => !each.rank).length, "of them finds", "of them find")} no right tool</p></div>
      ${others.length > 0 && html`<div class="card figure"><p class="figure-title">Left empty</p><p class="figure-value">${empty.toFixed(3)}</p><p class="muted">share of ${plural(others.length, "request")} that no tool serves, at the threshold ${threshold}</p></div>`}</div>
    <div class="section"><${Curve} points=${buildCurve(results)} threshold=${threshold} /></div>
    <div class="section card table-scroll" tabindex="0"><table class="wrapped"><thead><tr><th scope="col">Request</th><th scope="col">First tool</th><th scope="col" class="right aside">Confidence</th><th scope="col" class="right">Right one</th></tr></thead>
      <tbody>${[...results].sort((a, b) => judge(a) - judge(b)).slice(0, 300).map((each, i) => html`<tr key=${i}>
        <td><a href=${link("search", "", { q: each.query })}><${Text} value=${each.query} max=${140} /></a></td>
        <td class="mono"><${Text} value=${each.first ?? "none"} max=${80} /></td><td class="right aside">${formatPercent(each.confidence)}</td>
        <td class="right"><${Verdict} result=${each} threshold=${threshold} /></td></tr>`)}</tbody></table></div>
  </section>`;
}

function Verdict({ result, threshold }) {
  const { rank, scores } = result;
  if (!scores) return isAnswered(result, threshold) ? html`<span class="tag bad">none fits, answered</span>` : html`<span class="tag good">none fits, empty</span>`;
  return html`<span class=${`tag ${rank === 1 ? "good" : rank ? "warn" : "bad"}`}>${rank ? `rank ${rank}` : "not found"}</span>`;
}
