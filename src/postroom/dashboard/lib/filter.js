/**
 * The filter language of dead letters: `queue:pay class:timeout error:"timed out" payload.user.id:42 age>2h`.
 * It is read here into what the server's `where` understands; a word without a name is looked for in the error.
 */

/** @typedef {{name: string, where: string[], problem: string}} Filter name: a queue or dead-letter name, "-" for all */

/** What can be asked for, with an example: shown while somebody writes. @type {[string, string][]} */
export const CONDITIONS = [
  ["queue:", "queue:payments or a dead-letter name"],
  ["kind:", "kind:charge_card, also the name of a task"],
  ["error:", 'error:"timed out", a part of the exception'],
  ["class:", "class:timeout, crash-loop, exception, expired, undecodable"],
  ["group:", "group:open, acknowledged, resolved, or one group by its fingerprint"],
  ["task:", "task:… a task, message or correlation id"],
  ["payload.", "payload.user.id:42, a field of the payload"],
  ["attempts:", "attempts:5, at least so many"],
  ["age>", "age>2h, died longer ago"],
  ["age<", "age<30m, died since then"],
  ["since:", "since:2026-11-17T10:00Z, died from then on"],
  ["until:", "until:2026-11-17T11:00Z, died before"],
  ["replayed:", "replayed:yes or no"],
];

const NAMES = new Set(["kind", "error", "class", "group", "task", "attempts", "since", "until", "replayed"]);
/** How it stands with a group; a fingerprint is none of these. */
const STATUSES = new Set(["open", "acknowledged", "resolved"]);
const EVERYWHERE = "-";

/** @param {string} text @returns {Filter} */
export function parseFilter(text) {
  const found = { name: EVERYWHERE, where: /** @type {string[]} */ ([]), problem: "" };
  for (const word of words(text)) {
    const [, name, sign, value] = /^([a-z][\w.]*)([:><])(.*)$/s.exec(word) ?? [];
    if (!name) found.where.push(`error=${word}`);
    else if (!value) found.problem ||= `${name}${sign} needs a value`;
    else if (name === "queue" && sign === ":") found.name = value;
    else if (name === "age" && sign !== ":") found.where.push(`${sign === ">" ? "older" : "newer"}=${value}`);
    else if (name === "group" && STATUSES.has(value)) found.where.push(`status=${value}`);
    else if (sign === ":" && (NAMES.has(name) || name.startsWith("payload."))) found.where.push(`${name}=${value}`);
    else found.problem ||= `${name}${sign} is not known; there is ${CONDITIONS.map(([each]) => each).join(" ")}`;
  }
  return found;
}

/** Words, of which a quoted one may hold spaces: error:"timed out". @param {string} text */
const words = (text) => [...text.matchAll(/(?:[^\s"]|"[^"]*"?)+/g)].map(([word]) => word.replaceAll('"', ""));

/** The text with one condition in the place of any other of its name; null takes it out. @param {string} text @param {string} name @param {string | null} value */
export function withCondition(text, name, value) {
  const kept = [...text.matchAll(/(?:[^\s"]|"[^"]*"?)+/g)].map(([word]) => word).filter((word) => !word.startsWith(`${name}:`));
  if (value !== null) kept.unshift(`${name}:${/\s/.test(value) ? `"${value}"` : value}`);
  return kept.join(" ");
}
