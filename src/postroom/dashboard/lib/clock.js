/**
 * The server's time, and what counts down by it. A laptop's clock may be wrong: all deadlines are the
 * server's, so all of them are compared with `now()`.
 */
import { html, useEffect, useRef } from "./ui.js";

let ahead = 0;
/** Round trip of the best reading so far; a longer one says less, and readings get old. */
let best = Infinity;

/** @returns {number} The server's clock, epoch milliseconds. */
export const now = () => Date.now() + ahead;

/**
 * Take a reading of the server's clock.
 * @param {number} serverTime
 * @param {number} took How long the answer was under way (ms): the reading is of its middle.
 */
export function setTime(serverTime, took = 200) {
  best *= 1.2;
  if (took > best) return;
  best = Math.max(took, 1);
  ahead = serverTime + took / 2 - Date.now();
}

/** @typedef {(time: number) => void} Tick */
/** @type {Set<Tick>} */
const ticks = new Set();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

function beat() {
  timer = undefined;
  if (document.hidden) return;
  const time = now();
  for (const tick of [...ticks]) tick(time);
  schedule();
}

function schedule() {
  if (timer !== undefined || !ticks.size || document.hidden) return;
  timer = setTimeout(beat, 1000 - (((now() % 1000) + 1000) % 1000) + 5);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    clearTimeout(timer);
    beat();
  }
});

/**
 * Call this once a second, on the second, while the tab is seen. One timer serves all; without any, none runs.
 * @param {Tick} tick
 * @returns {() => void} Call it no more.
 */
export function everySecond(tick) {
  ticks.add(tick);
  schedule();
  return () => {
    ticks.delete(tick);
    if (!ticks.size) {
      clearTimeout(timer);
      timer = undefined;
    }
  };
}

/** How many are called each second: for tests. */
export const ticking = () => (timer === undefined ? 0 : ticks.size);

/** Below this much (ms), time is short. */
const SHORT = 10_000;

/**
 * @param {number} left ms
 * @returns {string} "1:23:45", "2:05" or "42s"; seconds round up, so that 0 is never shown of something left.
 */
export function countdownText(left) {
  const seconds = Math.max(0, Math.ceil(left / 1000));
  if (seconds < 60) return `${seconds}s`;
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h >= 48) return `${Math.floor(h / 24)}d ${h % 24}h`;
  const tail = `${String(s).padStart(2, "0")}`;
  return h ? `${h}:${String(m).padStart(2, "0")}:${tail}` : `${m}:${tail}`;
}

/**
 * Time left until a moment, counted down in place: the component itself is not drawn again.
 * @param {{deadline: number | null | undefined, over?: string, label?: string, from?: number | null}} props
 *   `over` is what stands there afterwards; with `from`, a bar shows how much of the span is left.
 */
export function Countdown({ deadline, over = "Overdue", label = "", from = null }) {
  const element = useRef(/** @type {HTMLTimeElement | null} */ (null));
  useEffect(() => {
    const node = element.current;
    if (!node || deadline == null) return undefined;
    /** @param {number} time */
    const show = (time) => {
      const left = deadline - time;
      const phase = left <= 0 ? "over" : left <= SHORT ? "short" : "fine";
      const text = left <= 0 ? over : countdownText(left);
      const words = /** @type {HTMLElement} */ (node.lastElementChild);
      if (words.textContent !== text) words.textContent = text;
      if (node.dataset.phase !== phase) node.dataset.phase = phase;
      if (from != null) {
        const share = Math.max(0, Math.min(1, left / Math.max(1, deadline - from)));
        node.style.setProperty("--left", share.toFixed(3));
      }
    };
    show(now());
    return everySecond(show);
  }, [deadline, over, from]);
  if (deadline == null) return html`<span class="faint">—</span>`;
  return html`<time ref=${element} class="countdown" dateTime=${new Date(deadline).toISOString()}
    title=${`${label}${new Date(deadline).toLocaleString()}`}>
    ${from != null ? html`<i class="countdown-bar" aria-hidden="true"></i>` : null}<span></span></time>`;
}
