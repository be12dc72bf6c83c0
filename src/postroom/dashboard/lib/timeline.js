/** How a message came to where it is: what the message tells of itself and what its queue's history tells, as one story. */

/**
 * @typedef {{at: number, words: string, tone: string, detail?: string, count?: string, since?: number | null, between?: string,
 *   until?: number, untilWords?: string, over?: string, link?: string, linkQueue?: string, after?: string}} Step
 *   since: what passed since the step before (ms), and `between` what it did meanwhile
 */

/** What the history tells again that the attempts tell better. */
const ENDS = new Set(["retry", "requeue", "move_to_dlq"]);
/** An attempt and its line in the history are of one step, but not always of one millisecond. */
const SAME = 20;
/** @type {Record<string, string>} */
const WORDS = {
  retry: "To be tried again", requeue: "Reclaimed", move_to_dlq: "Became a dead letter", expire: "Expired", cancel: "Cancelled",
  reschedule: "Rescheduled", run_now: "Made ready by hand", replay: "Replayed", discard: "Discarded",
};

/**
 * @param {any} message
 * @param {any[]} entries
 * @param {number | undefined} most
 * @param {{queue: string, id: string, number: number} | null} origin the dead letter that it is a replay of
 * @returns {Step[]} oldest first
 */
export function timelineOf(message, entries, most, origin) {
  /** @type {Step[]} */
  const steps = [{ at: message.put_at, words: "Put", tone: "plain", detail: message.deliveries === 0 && message.due > message.put_at && message.attempt === 0 ? "with a delay" : "", after: "waited",
    ...(origin ? { words: "Put again", detail: origin.number > 1 ? `the ${origin.number}. replay of a dead letter` : "the replay of a dead letter", link: origin.id, linkQueue: origin.queue } : {}) }];
  message.attempts.forEach((/** @type {any} */ attempt, /** @type {number} */ i) => {
    const number = message.attempt - message.attempts.length + i + 1;
    const end = entries.find((entry) => ENDS.has(entry.event) && Math.abs(entry.at - attempt.ended_at) <= SAME);
    steps.push({ at: attempt.started_at, words: "Started", tone: "good", count: ofMost(number, most), detail: attempt.consumer, after: attempt.extended ? `${extended(attempt)}, ran` : "ran" });
    steps.push({ at: attempt.ended_at, words: end?.event === "requeue" ? "Ran out of time, reclaimed" : "Failed", tone: "bad", detail: attempt.error, after: "backed off" });
  });
  const ended = message.attempts.map((/** @type {any} */ attempt) => attempt.ended_at);
  for (const entry of entries) {
    const isTold = ENDS.has(entry.event) && entry.event !== "move_to_dlq" && ended.some((/** @type {number} */ at) => Math.abs(at - entry.at) <= SAME);
    if (!isTold) steps.push(told(entry, message));
  }
  if (message.state === "dead" && message.failed_at && !steps.some((step) => step.words === WORDS.move_to_dlq)) {
    steps.push({ at: message.failed_at, words: WORDS.move_to_dlq, tone: "bad", detail: message.last_error ?? "", after: "lay" });
  }
  if (message.state === "processing" && message.started_at) {
    steps.push({ at: message.started_at, words: "Working", tone: "good now", count: ofMost(message.attempt + 1, most), detail: [message.consumer, message.extended && extended(message)].filter(Boolean).join(" · "), until: message.deadline, untilWords: "left", over: "Overdue" });
  }
  steps.sort((a, b) => a.at - b.at);
  if (message.state === "scheduled") steps.push({ at: message.due, words: "Due", tone: "plain now", until: message.due, untilWords: "from now", over: "now" });
  return steps.map((step, i) => ({ ...step, since: i ? step.at - steps[i - 1].at : null, between: steps[i - 1]?.after ?? "after" }));
}

/** @param {number} number @param {number | undefined} most */
const ofMost = (number, most) => (most ? `attempt ${number} of ${most}` : `attempt ${number}`);

/** How often work was given more time; the store counts up to 255. @param {{extended: number}} work */
const extended = ({ extended: times }) => `extended ×${times}${times === 255 ? " or more" : ""}`;

/** @param {any} entry @param {any} message @returns {Step} */
function told(entry, message) {
  const who = entry.info.actor ?? entry.info.by ?? entry.info.triggered_by;
  const isDeath = entry.event === "move_to_dlq";
  return {
    at: entry.at, words: WORDS[entry.event] ?? entry.event.replaceAll("_", " "), tone: isDeath ? "bad" : "plain",
    detail: [who && `by ${who}`, entry.info.reason, isDeath ? message.last_error : ""].filter(Boolean).join(" · "), after: isDeath ? "lay" : "waited",
    ...(entry.event === "replay" ? { link: message.replayed_as.at(-1) } : {}),
  };
}
