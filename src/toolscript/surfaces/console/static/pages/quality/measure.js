// Has the gateway measure queries with known answers: the same as `toolscript eval --live`.
import { ask } from "../../core/api.js";

// As many as take about a second, to show how far it is.
const AT_ONCE = 20;

/** Reads lines of `request => tool, tool`, or of JSON with `query` and `relevant`. Without tools, none serves the request.
 * Throws, naming the line. */
export function parseQueries(text) {
  return text.split("\n").map((line, i) => [line.trim(), i + 1]).filter(([line]) => line && !line.startsWith("#")).map(([line, number]) => {
    const found = line.startsWith("{") ? parseJson(line, number) : parsePlain(line);
    if (!found.query || !found.relevant) throw new Error(`Line ${number}: write a request, =>, and the tools that serve it, or nothing where no tool does.`);
    return found;
  });
}

function parsePlain(line) {
  const [query, tools] = line.split("=>", 2);
  return { query: query.trim(), relevant: tools?.split(",").map((tool) => tool.trim()).filter(Boolean) };
}

function parseJson(line, number) {
  try {
    const { query, relevant, groups } = JSON.parse(line);
    const tools = Array.isArray(relevant) ? relevant.map(String) : relevant && Object.keys(relevant).filter((tool) => relevant[tool] > 0);
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

export function isAnswered(result, threshold) {
  return result.confidence > 0 && result.confidence >= threshold;
}

/** The share of results that a condition holds for; null without results. */
export function share(results, holds) {
  return results.length ? results.filter(holds).length / results.length : null;
}

/** For each threshold: of the queries that some tool serves the share with an answer, of these the share whose first tool
 * is right, and of the queries that no tool serves the share without an answer. */
export function buildCurve(results) {
  const [served, others] = [results.filter((each) => each.scores), results.filter((each) => !each.scores)];
  return Array.from({ length: 51 }, (_, i) => i / 50).map((threshold) => {
    const answered = served.filter((each) => isAnswered(each, threshold));
    return {
      threshold,
      answered: share(served, (each) => isAnswered(each, threshold)),
      precise: share(answered, (each) => each.scores["hit@1"]),
      empty: share(others, (each) => !isAnswered(each, threshold)),
    };
  });
}
