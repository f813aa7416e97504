// Measures queries with known answers against the gateway, with the metrics of `toolscript eval`.
import { ask } from "../../core/api.js";

const DEPTH = 10;
const AT_ONCE = 3;

/** Reads lines of `request => tool, tool`, or of JSON with `query` and `relevant`. Throws, naming the line. */
export function parseQueries(text) {
  return text.split("\n").map((line, i) => [line.trim(), i + 1]).filter(([line]) => line && !line.startsWith("#")).map(([line, number]) => {
    const found = line.startsWith("{") ? parseJson(line, number) : parsePlain(line);
    if (!found.query || !found.relevant.length) throw new Error(`Line ${number}: write a request, =>, and the tools that serve it.`);
    return found;
  });
}

function parsePlain(line) {
  const [query, tools = ""] = line.split("=>", 2);
  return { query: query.trim(), relevant: tools.split(",").map((tool) => tool.trim()).filter(Boolean) };
}

function parseJson(line, number) {
  try {
    const { query, relevant } = JSON.parse(line);
    return { query: String(query ?? "").trim(), relevant: Array.isArray(relevant) ? relevant.map(String) : Object.keys(relevant ?? {}) };
  } catch {
    throw new Error(`Line ${number} is not valid JSON.`);
  }
}

/** Asks every query, a few at a time; calls `report` with the number done. */
export async function measure(queries, signal, report) {
  const results = new Array(queries.length);
  let next = 0;
  let done = 0;
  const work = async () => {
    while (next < queries.length) {
      const i = next++;
      const given = new URLSearchParams({ q: queries[i].query, limit: DEPTH, threshold: 0 });
      const answer = await ask("GET", `/search?${given}`, { signal });
      results[i] = score(queries[i], answer.results);
      report(++done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return results;
}

function score({ query, relevant }, hits) {
  const left = new Set(relevant);
  const gains = hits.map((hit) => [hit.toolId, ...(hit.variants ?? [])].some((id) => left.delete(id)));
  const discount = (list) => list.reduce((sum, hit, i) => sum + (hit ? 1 / Math.log2(i + 2) : 0), 0);
  const found = (depth) => gains.slice(0, depth).filter(Boolean).length;
  return {
    query, relevant, hits, rank: gains.indexOf(true) + 1,
    first: hits[0]?.confidence ?? 0,
    "Hit@1": gains[0] ? 1 : 0,
    "R@5": found(5) / relevant.length,
    "NDCG@10": discount(gains) / discount(Array.from({ length: Math.min(DEPTH, relevant.length) }, () => true)),
  };
}

/** For each threshold the share of queries that get an answer, and of these the share whose first tool is right. */
export function buildCurve(results) {
  return Array.from({ length: 51 }, (_, i) => i / 50).map((threshold) => {
    const answered = results.filter((each) => each.first >= threshold);
    return { threshold, answered: answered.length / results.length, precise: answered.length ? answered.filter((each) => each["Hit@1"]).length / answered.length : null };
  });
}
