/** The server's routes. An answer that is no success is a Problem (RFC 9457), with words for people. */
import { setTime } from "./clock.js";

/** Relative to the page, so that the dashboard works wherever it is mounted. */
export const BASE = new URL("api/v1/", document.baseURI).href;
/** No answer for so long (ms) is no answer. */
const PATIENCE = 30_000;

export class Problem extends Error {
  /** @param {number} status @param {any} document */
  constructor(status, document) {
    super(document?.detail || document?.title || `The server answered ${status}.`);
    this.status = status;
    /** @type {string} */
    this.code = document?.code ?? (status === 0 ? "unreachable" : "error");
    /** @type {string} */
    this.requestId = document?.request_id ?? "";
    this.document = document;
  }
}

/** @type {Set<(problem: Problem | null) => void>} */
const watchers = new Set();
/** Be told how each request ends: null when the server answered, else its problem. @param {(problem: Problem | null) => void} watcher */
export const watch = (watcher) => watchers.add(watcher);

/** Names in a path may hold anything. @param {TemplateStringsArray} strings @param {...(string | number)} names */
export const path = (strings, ...names) =>
  strings.reduce((text, part, i) => text + encodeURIComponent(String(names[i - 1])) + part);

/** @param {Record<string, any>} query @returns {string} "?a=1&b=2"; lists repeat their name, null is left out */
export function queryText(query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") search.append(name, String(each));
    }
  }
  const text = search.toString();
  return text && `?${text}`;
}

/** @typedef {{response: Response, text: string, begun: number, ended: number}} Early An answer, and when it was asked for and there. */

/** What early.js has asked already, once each. @param {string} method @param {string} where @returns {Promise<Early | null> | null} */
function early(method, where) {
  /** @type {Map<string, Promise<Early | null>> | undefined} */
  const asked = /** @type {any} */ (window).postroomEarly;
  const found = method === "GET" ? asked?.get(where) : undefined;
  asked?.delete(where);
  return found ?? null;
}

/**
 * @param {string} method
 * @param {string} where below api/v1
 * @param {{body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function request(method, where, { body, headers, signal } = {}) {
  const asked = await early(method, where);
  const limit = AbortSignal.timeout(PATIENCE);
  const begun = asked?.begun ?? performance.now();
  /** @type {Response} */
  let response;
  try {
    response = asked?.response ?? await fetch(BASE + where, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw told(new Problem(0, { code: "unreachable", detail: "The server cannot be reached." }));
  }
  const text = asked?.text ?? await response.text();
  const ended = asked?.ended ?? performance.now();
  const answer = text && /json/.test(response.headers.get("content-type") ?? "") ? parse(text) : text;
  if (!response.ok) throw told(new Problem(response.status, typeof answer === "object" ? answer : null));
  if (typeof answer?.now === "number") setTime(answer.now + performance.now() - ended, ended - begun);
  for (const watcher of watchers) watcher(null);
  return answer;
}

/** @param {Problem} problem */
function told(problem) {
  for (const watcher of watchers) watcher(problem);
  return problem;
}

/**
 * JSON whose numbers are kept: one that JavaScript cannot hold exactly becomes a Big, which shows all its digits.
 * @param {string} text
 */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, /** @type {any} */ (function (/** @type {string} */ _, /** @type {any} */ value, /** @type {{source?: string} | undefined} */ context) {
    const source = context?.source;
    const isLost = typeof value === "number" && source && /^-?\d{16,}$/.test(source) && !Number.isSafeInteger(value);
    return isLost ? new Big(source) : value;
  }));
}

/** A whole number with more digits than JavaScript keeps. */
export class Big {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }

  /** Every digit: whoever reads numbers by their source can write them by it. */
  toJSON() {
    return /** @type {any} */ (JSON).rawJSON(this.text);
  }
}

/** @param {string} where @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export const get = (where, query = {}, signal) => request("GET", where + queryText(query), { signal });
/** @param {string} where @param {any} [body] @param {string} [reason] Why: it stands in the audit. */
export const post = (where, body, reason = "") => request("POST", where, { body, headers: reason ? { "x-postroom-reason": encodeURIComponent(reason) } : {} });
/** @param {string} where @param {any} [body] */
export const put = (where, body) => request("PUT", where, { body });
/** @param {string} where */
export const del = (where) => request("DELETE", where);
