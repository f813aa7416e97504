async function callTool(path: string, params: object = {}): Promise<any> {
  const url = environment("TOOLSCRIPT_GATEWAY_URL");
  if (!url) throw new Error("TOOLSCRIPT_GATEWAY_URL not set");
  const key = environment("TOOLSCRIPT_API_KEY");
  const response = await fetch(`${url.replace(/\/+$/, "")}/tools/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) },
    body: JSON.stringify(params),
  });
  if (!response.ok) {
    const cause = (await response.json().catch(() => null))?.error;
    const message = cause?.message || response.statusText || `HTTP ${response.status}`;
    throw new Error(`Tool call failed: ${message}`, { cause });
  }
  return await response.json();
}

function environment(name: string): string | undefined {
  const { Deno, process } = globalThis as unknown as {
    Deno?: { env: { get(name: string): string | undefined } };
    process?: { env: { [name: string]: string | undefined } };
  };
  return Deno ? Deno.env.get(name) : process?.env[name];
}
