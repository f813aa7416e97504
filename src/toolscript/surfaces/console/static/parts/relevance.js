// How probable it is that a passage or document is about the request; where that is unknown, the score of the search.
import { html } from "../core/dom.js";
import { formatPercent } from "../core/format.js";

export function Relevance({ hit }) {
  const { relevance } = hit;
  if (relevance == null) return html`<div class="hit-why narrow"><p title="Only good for the order of one search"><strong>${hit.score.toFixed(2)}</strong> <small>score</small></p></div>`;
  return html`<div class="hit-why narrow"><p title=${`How probable it is that this is about the request. Score: ${hit.score.toFixed(4)}`}><strong>${formatPercent(relevance)}</strong> <small>relevant</small></p>
    <div class="bar" aria-hidden="true"><i class="of-plain" style=${{ width: `${100 * relevance}%` }}></i></div></div>`;
}

export function NothingRelevant() {
  return html`<p class="note">Nothing relevant was found: these are the nearest, most likely about something else.</p>`;
}
