/** Moments: relative to read, absolute to know. */
import { everySecond, now } from "./clock.js";
import { span } from "./format.js";
import { place, setQuery } from "./router.js";
import { createKept, createStore, useStore } from "./store.js";
import { html, useEffect, useRef } from "./ui.js";

/** What somebody chose in this browser, and what is shown: an address that says tz=… shows that, and changes no choice. */
const chosen = createKept("zone", "local");
/** "local" or "utc": how absolute times are written. */
export const zone = createStore(chosen.get());

/** UTC is in every address, so that who gets a link reads the same times. */
function follow() {
  const { tz } = place.get().query;
  if (tz === "utc" || tz === "local") zone.set(tz);
  else if (zone.get() === "utc") setQuery({ tz: "utc" });
}
place.subscribe(follow);
follow();

/** @param {string} next "local" or "utc" */
export function setZone(next) {
  chosen.set(next);
  zone.set(next);
  setQuery({ tz: next === "utc" ? next : null });
}

export const nextZone = () => setZone(zone.get() === "utc" ? "local" : "utc");

/**
 * @param {number} at epoch ms
 * @returns {string} 2026-11-16 23:59:01.250, in the zone that was chosen
 */
export function absolute(at) {
  const date = new Date(at);
  const utc = zone.get() === "utc";
  const shifted = utc ? date : new Date(at - date.getTimezoneOffset() * 60_000);
  return `${shifted.toISOString().replace("T", " ").slice(0, 23)}${utc ? " UTC" : ""}`;
}

/** @param {number} at @returns {string} Today only the time of day, else with the date. */
export function brief(at) {
  const text = absolute(at);
  return text.slice(0, 10) === absolute(now()).slice(0, 10) ? text.slice(11, 19) : text.slice(0, 16);
}

/**
 * @param {number} at
 * @param {number} [time]
 * @returns {string} "just now", "3 min ago", "in 2 h"
 */
export function relative(at, time = now()) {
  const passed = time - at;
  if (Math.abs(passed) < 2_000) return passed < 0 ? "now" : "just now";
  const text = coarse(Math.abs(passed));
  return passed > 0 ? `${text} ago` : `in ${text}`;
}

/** @param {number} ms One unit only: what stands still reads better. */
function coarse(ms) {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/**
 * A moment: relative, kept up to date in place, with the absolute time on hover.
 * @param {{at: number | null | undefined, none?: string}} props
 */
export function When({ at, none = "—" }) {
  useStore(zone);
  const element = useRef(/** @type {HTMLTimeElement | null} */ (null));
  useEffect(() => {
    const node = element.current;
    if (!node || at == null) return undefined;
    /** @param {number} time */
    const show = (time) => {
      const text = relative(at, time);
      if (node.textContent !== text) node.textContent = text;
    };
    show(now());
    return everySecond(show);
  }, [at]);
  if (at == null) return html`<span class="faint">${none}</span>`;
  return html`<time ref=${element} dateTime=${new Date(at).toISOString()} title=${absolute(at)}></time>`;
}

/** How long something has gone on, counted in place. @param {{since: number}} props */
export function Elapsed({ since }) {
  const element = useRef(/** @type {HTMLSpanElement | null} */ (null));
  useEffect(() => {
    /** @param {number} time */
    const show = (time) => { if (element.current) element.current.textContent = time - since < 1_000 ? "0 s" : span(Math.floor((time - since) / 1_000) * 1_000); };
    show(now());
    return everySecond(show);
  }, [since]);
  return html`<span ref=${element}></span>`;
}

/**
 * How old something is, from an age that the server told.
 * @param {{ms: number, none?: string}} props
 */
export const Age = ({ ms, none = "—" }) =>
  ms > 0 ? html`<span title=${`${Math.round(ms)} ms`}>${span(ms)}</span>` : html`<span class="faint">${none}</span>`;
