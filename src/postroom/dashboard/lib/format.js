/** How numbers and spans are written. */

const whole = new Intl.NumberFormat("en-US");

/** @param {number} n @returns {string} 12,345 */
export const count = (n) => whole.format(n);

/** @param {number} n @returns {string} At most four characters before the unit: 9,999 · 12.3k · 4.5M */
export function short(n) {
  if (Math.abs(n) < 10_000) return whole.format(Math.round(n));
  if (Math.abs(n) < 1_000_000) return `${trim(n / 1_000)}k`;
  return `${trim(n / 1_000_000)}M`;
}

/** @param {number} n */
const trim = (n) => (Math.abs(n) >= 100 ? n.toFixed(0) : n.toFixed(1).replace(/\.0$/, ""));

/** @param {number} n Per second. @returns {string} */
export function rate(n) {
  if (n === 0) return "0/s";
  if (n < 1 / 60) return `${trim(n * 3600)}/h`;
  if (n < 0.1) return `${trim(n * 60)}/min`;
  return `${n < 10 ? trim(n) : short(n)}/s`;
}

/** @param {number} ms @returns {string} A span in two units at most: 250 ms · 4.2 s · 3 min 5 s · 2 h · 5 d 3 h */
export function span(ms) {
  if (ms < 0) return `−${span(-ms)}`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${trim(ms / 1_000)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const units = /** @type {const} */ ([["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]]);
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first];
  const head = `${Math.floor(seconds / size)} ${name}`;
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return next && rest ? `${head} ${rest} ${next[0]}` : head;
}

/** @param {number} ms @returns {string} For an axis: one unit, no space: 250ms · 20s · 1.5m · 2h · 3d */
export function mark(ms) {
  if (ms === 0) return "0";
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const units = /** @type {const} */ ([["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000]]);
  const [name, unit] = units.find(([, each]) => ms >= each) ?? units[3];
  return `${trim(ms / unit)}${name}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 ** 2) return `${trim(bytes / 1024)} KB`;
  if (bytes < 1024 ** 3) return `${trim(bytes / 1024 ** 2)} MB`;
  return `${trim(bytes / 1024 ** 3)} GB`;
}

/** @param {number} n @param {string} one @param {string} [many] @returns {string} "1 queue", "3 queues" */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** @param {string} id @returns {string} The end of an id tells more than its beginning, which is time. */
export const shortId = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);
