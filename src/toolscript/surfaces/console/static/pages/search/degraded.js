// Parts that a search had to do without, in words.
const MEANINGS = {
  embedder: "The model could not read the request: results match by words and names.",
  index: "The index did not answer: results from it are missing.",
  store: "The store did not answer.",
  catalogue: "Some servers are still starting: a later search may find more.",
  schemas: "Schemas could not be read.",
  reranker: "The reranker failed: results keep the order of the first ranking.",
};

export function describeDegraded(parts) {
  return parts.map((part) => MEANINGS[part] ?? `The search had to do without ${part}.`).join(" ");
}
