/** Messages of one state in every queue that has some: queue after queue, each in its own order. */
import { get, path } from "./api.js";
import { standing } from "./data.js";

/**
 * @param {"processing" | "scheduled"} state
 * @param {string} only a queue; "" for all
 * @returns {(cursor: string | null, limit: number) => Promise<{rows: import("./rows.js").Row[], cursor: string | null}>}
 */
export const messagesOf = (state, only) => async (cursor, limit) => {
  const room = standing.get() ?? await get("stats");
  const [queue, at] = cursor ? JSON.parse(cursor) : [null, null];
  const queues = room.queues.filter((/** @type {any} */ each) => (only ? each.queue === only : each[state] || each.queue === queue)).map((/** @type {any} */ each) => each.queue).sort();
  let number = queue === null ? 0 : Math.max(0, queues.indexOf(queue)), from = at;
  const rows = [];
  while (number < queues.length && rows.length < limit) {
    const found = await get(path`queues/${queues[number]}/messages`, { state, cursor: from, limit: limit - rows.length });
    rows.push(...found.messages);
    from = found.cursor;
    if (from) return { rows, cursor: JSON.stringify([queues[number], from]) };
    number += 1;
  }
  return { rows, cursor: number < queues.length ? JSON.stringify([queues[number], null]) : null };
};
