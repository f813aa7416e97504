// The catalogue in the form that `toolscript eval` reads.
import { ask } from "../../core/api.js";

const AT_ONCE = 6;
// The schemas of more are not read: each is a request of its own.
const MAX_SCHEMAS = 2000;

export async function readCatalogue() {
  const { tools } = await ask("GET", "/tools");
  const rows = tools.map((tool) => ({
    id: tool.toolId, server: tool.serverName, name: tool.toolName, type: tool.type, description: tool.description, input_schema: null,
  }));
  let next = 0;
  const work = async () => {
    while (next < Math.min(rows.length, MAX_SCHEMAS)) {
      const row = rows[next++];
      row.input_schema = (await ask("GET", `/tools/${encodeURIComponent(row.id)}`)).inputSchema;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return rows;
}
