/** Which letters are meant, in words for people and as the server takes it. */
import { plural } from "../../lib/format.js";

/** @typedef {{name: string, body: {ids: string[]} | {where: string[]}, words: string}} Scope */

/**
 * @param {import("../../lib/filter.js").Filter} filter
 * @param {Set<string>} selected ids
 * @param {{exception: string, count: number} | undefined} group
 * @returns {Scope}
 */
export function scopeOf(filter, selected, group) {
  const place = filter.name === "-" ? "in every queue" : `in ${filter.name}`;
  if (selected.size) return { name: filter.name, body: { ids: [...selected] }, words: `the ${plural(selected.size, "dead letter")} you selected` };
  const body = { where: filter.where };
  if (group && filter.where.length === 1) return { name: filter.name, body, words: `all ${plural(group.count, "dead letter")} of “${group.exception}” ${place}` };
  if (filter.where.length) return { name: filter.name, body, words: `every dead letter with ${filter.where.join(", ")} ${place}` };
  return { name: filter.name, body, words: `every dead letter ${place}` };
}
