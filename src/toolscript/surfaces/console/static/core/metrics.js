// Prometheus' text format, as far as the health page needs it.
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-z_]+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, value]));
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return found;
}

/** The total of all samples whose labels are wanted. */
export const sum = (metrics, name, isWanted = () => true) =>
  (metrics.get(name) ?? []).reduce((total, sample) => total + (isWanted(sample.labels) ? sample.value : 0), 0);

export const single = (metrics, name) => metrics.get(name)?.[0]?.value ?? null;

/** A histogram by one label, or several: count, mean and percentiles in milliseconds, most frequent first. */
export function summarise(metrics, name, labels) {
  const rows = new Map();
  const row = (sample) => {
    const key = labels.map((label) => sample.labels[label] ?? "").join(" ");
    if (!rows.has(key)) rows.set(key, { name: key, count: 0, sum: 0, buckets: new Map() });
    return rows.get(key);
  };
  for (const sample of metrics.get(`${name}_count`) ?? []) row(sample).count += sample.value;
  for (const sample of metrics.get(`${name}_sum`) ?? []) row(sample).sum += sample.value;
  for (const sample of metrics.get(`${name}_bucket`) ?? []) {
    const { buckets } = row(sample);
    const limit = sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le);
    buckets.set(limit, (buckets.get(limit) ?? 0) + sample.value);
  }
  return [...rows.values()].filter((each) => each.count).map((each) => ({
    name: each.name, count: each.count, mean: (1000 * each.sum) / each.count, p50: findQuantile(each, 0.5), p95: findQuantile(each, 0.95),
  })).sort((a, b) => b.count - a.count);
}

/** Interpolates inside of a bucket, as Prometheus does. */
function findQuantile({ buckets, count }, share) {
  const wanted = share * count;
  let [below, from] = [0, 0];
  for (const [limit, total] of [...buckets].sort(([a], [b]) => a - b)) {
    if (total >= wanted) {
      if (limit === Infinity) return 1000 * from;
      return 1000 * (from + ((limit - from) * (wanted - below)) / Math.max(1, total - below));
    }
    [below, from] = [total, limit];
  }
  return null;
}
