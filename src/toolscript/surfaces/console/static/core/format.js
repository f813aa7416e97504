// Numbers and times for people. A number and its unit stay in one line.
const SPACE = "\u00a0";
const count = new Intl.NumberFormat("en");
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export const formatCount = (n) => (n == null ? "–" : count.format(n));
export const formatPercent = (share) => `${Math.round(100 * share)}${SPACE}%`;
export const plural = (n, one, many = `${one}s`) => `${formatCount(n)} ${n === 1 ? one : many}`;

export function formatMs(ms) {
  if (ms == null) return "–";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)}${SPACE}s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)}${SPACE}s`;
  return `${ms >= 100 ? ms.toFixed(0) : ms.toFixed(1)}${SPACE}ms`;
}

export function formatBytes(bytes) {
  if (bytes == null) return "–";
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= size) return `${(bytes / size).toFixed(bytes >= 10 * size ? 0 : 1)}${SPACE}${unit}`;
  }
  return `${bytes}${SPACE}B`;
}

export function formatAgo(time) {
  const seconds = Math.max(0, (Date.now() - new Date(time)) / 1000);
  const [size, unit] = UNITS.find(([each]) => seconds >= each) ?? [1, "s"];
  return seconds < 1 ? "now" : `${Math.floor(seconds / size)} ${unit} ago`;
}
