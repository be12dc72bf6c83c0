/** Which letters are meant, in words for people and as the server takes it. */
import { path } from "../../lib/api.js";
import { plural } from "../../lib/format.js";

/** @typedef {{base: string, body: {ids: string[]} | {where: string[]}, words: string, without?: string[]}} Scope base: where they are, as dead/-; without: what cannot be asked for there */

/**
 * @param {import("../../lib/filter.js").Filter} filter
 * @param {Set<string>} selected ids
 * @param {{exception: string, count: number} | undefined} group
 * @returns {Scope}
 */
export function scopeOf(filter, selected, group) {
  return scopeIn(path`dead/${filter.name}`, filter.name === "-" ? "in every queue" : `in ${filter.name}`, filter, selected, group);
}

/**
 * The same of letters that lie elsewhere.
 * @param {string} base @param {string} place in words
 * @param {import("../../lib/filter.js").Filter} filter @param {Set<string>} selected @param {{exception: string, count: number} | undefined} group
 * @returns {Scope}
 */
export function scopeIn(base, place, filter, selected, group) {
  if (selected.size) return { base, body: { ids: [...selected] }, words: `the ${plural(selected.size, "dead letter")} you selected` };
  const body = { where: filter.where };
  if (group && filter.where.length === 1) return { base, body, words: `all ${plural(group.count, "dead letter")} of “${group.exception}” ${place}` };
  if (filter.where.length) return { base, body, words: `every dead letter with ${filter.where.join(", ")} ${place}` };
  return { base, body, words: `every dead letter ${place}` };
}
