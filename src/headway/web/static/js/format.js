// Numbers with their units, as everywhere in Headway: rates in rows/s, times with the unit that fits.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const known = (n) => n !== null && n !== undefined && Number.isFinite(Number(n));

export const count = (n) => (known(n) ? whole.format(n) : "–");

export function rate(n, unit = " rows/s") {
  if (!known(n)) return "–";
  const digits = Math.abs(n) >= 100 || n === 0 ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return n.toLocaleString("en-US", { maximumFractionDigits: digits }) + unit;
}

export function seconds(t) {
  if (!known(t)) return "–";
  if (t === 0) return "0 s";
  const a = Math.abs(t);
  if (a < 1e-3) return `${short(t * 1e6)} µs`;
  if (a < 1) return `${short(t * 1e3)} ms`;
  if (a < 120) return `${short(t)} s`;
  const m = Math.floor(t / 60);
  if (m < 120) return `${m} min ${String(Math.floor(t % 60)).padStart(2, "0")} s`;
  return `${Math.floor(m / 60)} h ${String(m % 60).padStart(2, "0")} min`;
}

const short = (n) => (Math.abs(n) >= 100 ? n.toFixed(0) : Math.abs(n) >= 10 ? n.toFixed(1) : n.toFixed(2));

export const percent = (x) => (known(x) ? `${Math.round(x * 100)}%` : "–");

export function bytes(b) {
  if (!known(b)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (b >= 1024 && i < units.length - 1) { b /= 1024; i += 1; }
  return `${i ? short(b) : whole.format(b)} ${units[i]}`;
}

/** The number of an item; one that a flat_map made is named by its parent and its place. */
export const item = (seq) => (Array.isArray(seq) ? [count(seq[0]), ...seq.slice(1)].join(".") : count(seq));

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
