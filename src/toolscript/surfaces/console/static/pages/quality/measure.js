// Has the gateway measure queries with known answers: the same as `toolscript eval --live`.
import { ask } from "../../core/api.js";

// As many as take about a second, to show how far it is.
const AT_ONCE = 20;

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
    const { query, relevant, groups } = JSON.parse(line);
    const tools = Array.isArray(relevant) ? relevant.map(String) : Object.keys(relevant ?? {});
    return { query: String(query ?? "").trim(), relevant: tools, ...(groups ? { groups } : {}) };
  } catch {
    throw new Error(`Line ${number} is not valid JSON.`);
  }
}

/** Measures all queries; calls `report` with the number done. */
export async function measure(queries, signal, report) {
  const results = [];
  while (results.length < queries.length) {
    const some = queries.slice(results.length, results.length + AT_ONCE);
    results.push(...(await ask("POST", "/api/v1/evaluate", { signal, body: { queries: some } })).results);
    report(results.length);
  }
  return results;
}

/** For each threshold the share of queries that get an answer, and of these the share whose first tool is right. */
export function buildCurve(results) {
  return Array.from({ length: 51 }, (_, i) => i / 50).map((threshold) => {
    const answered = results.filter((each) => each.confidence > 0 && each.confidence >= threshold);
    return { threshold, answered: answered.length / results.length, precise: answered.length ? answered.filter((each) => each.scores["hit@1"]).length / answered.length : null };
  });
}
