/**
 * Where we are. The address holds the whole state of a page (#/queues/emails?state=dead), so that every view
 * is a link. Behind the #, so that it works wherever the server is mounted.
 */
import { queryText } from "./api.js";
import { createStore, useStore } from "./store.js";

/** @typedef {{path: string, query: Record<string, string>}} Place */

/** @returns {Place} */
function read() {
  const [path, search = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return { path: path || "/", query: Object.fromEntries(new URLSearchParams(search)) };
}

export const place = createStore(read());
window.addEventListener("hashchange", () => place.set(read()));

/**
 * The address of a place.
 * @param {string} path with names encoded: see `at`
 * @param {Record<string, any>} [query]
 */
export const href = (path, query = {}) => `#${path}${queryText(query)}`;

/** A path with names in it. @param {TemplateStringsArray} strings @param {...string} names */
export const at = (strings, ...names) => strings.reduce((text, part, i) => text + encodeURIComponent(names[i - 1]) + part);

/** Go somewhere. @param {string} path @param {Record<string, any>} [query] */
export function go(path, query = {}) {
  location.hash = href(path, query);
}

/** Change a part of the query; null takes it out. No step for the back button. @param {Record<string, any>} changes */
export function setQuery(changes) {
  const { path, query } = place.get();
  history.replaceState(null, "", href(path, { ...query, ...changes }));
  place.set(read());
}

/**
 * One value of the query, and how to change it.
 * @param {string} name
 * @param {string} [otherwise] What it is when the address does not say; then it is also not written there.
 * @returns {[string, (value: string) => void]}
 */
export function useQuery(name, otherwise = "") {
  const value = useStore(place, (now) => now.query[name] ?? otherwise);
  return [value, (next) => setQuery({ [name]: next === otherwise ? null : next })];
}

/** @typedef {{from: number, to: number}} Range epoch ms */

/**
 * A part of time that somebody drew over, and how to change it; null: all of it.
 * @param {string} name
 * @returns {[Range | null, (range: Range | null) => void]}
 */
export function useRange(name) {
  const [text] = useQuery(name);
  const [from, to] = text.split("-").map(Number);
  return [from > 0 && to > from ? { from, to } : null, (range) => setQuery({ [name]: range && `${range.from}-${range.to}` })];
}

/**
 * Whether a path is of this pattern, and the names in it.
 * @param {string} pattern "/queues/:queue"
 * @param {string} path
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/"), given = path.split("/");
  if (wanted.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const names = {};
  for (const [i, part] of wanted.entries()) {
    if (part.startsWith(":")) names[part.slice(1)] = decode(given[i]);
    else if (part !== given[i]) return null;
  }
  return names;
}

/** @param {string} text Of an address that anybody may have typed. */
export function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
