/**
 * Is it well? In words, with the cause, from what the server tells; no request of its own.
 */
import { pace } from "./data.js";
import { plural, short, span } from "./format.js";
import { at, href } from "./router.js";
import { brief } from "./time.js";

/**
 * @typedef {import("./data.js").QueueStats} QueueStats
 * @typedef {{tone: "bad" | "warn" | "plain", word: string, cause: string, href: string, queue?: string}} Finding
 *   word: one for a badge, such as "Stalled"; cause: a sentence for people
 * @typedef {{queue: string, target: number | null, p95: number | null, p50: number | null, count: number, within: number | null, met: boolean | null}} Sla
 * @typedef {{queue: string, stats: QueueStats, paused: boolean, pause_reason: string, policy: Record<string, any>}} QueueView
 */

/**
 * @typedef {{state: string, reason: string, queues: string[], held: number}} BreakerView
 * @typedef {{name: string, state: string, reason: string}} Guard a breaker that is not closed
 */

/** The breaker for which this queue waits, if it does. @param {Record<string, BreakerView> | undefined} breakers @param {string} queue @returns {Guard | undefined} */
export function guardOf(breakers, queue) {
  const found = Object.entries(breakers ?? {}).find(([, each]) => each.state !== "closed" && each.queues.includes(queue));
  return found && { name: found[0], state: found[1].state.replace("_", " "), reason: found[1].reason };
}

/**
 * Why a queue gives nothing, or no more, although messages are ready or will be; null: nothing holds them back.
 * @param {QueueStats} stats
 * @param {{pause_reason?: string, policy?: Record<string, any>} | undefined} view
 * @param {Guard | undefined} guard
 * @returns {Omit<Finding, "queue"> | null}
 */
export function holdup({ queue, ready, processing, paused, paused_until, throttled }, view, guard) {
  const here = href(at`/queues/${queue}`), waiting = ready ? `; ${plural(ready, "message")} wait${ready === 1 ? "s" : ""}` : "";
  if (paused) return { tone: "warn", word: "Paused", cause: `${view?.pause_reason || "by an operator"}${paused_until ? `, until ${brief(paused_until)}` : ""}${waiting}`, href: here };
  if (guard) return { tone: "warn", word: "Held back", cause: `breaker ${guard.name} is ${guard.state}${guard.reason ? ` (${guard.reason})` : ""}${waiting}`, href: href("/breakers") };
  const most = view?.policy?.max_in_flight;
  if (most && processing >= most) return { tone: "plain", word: "At its limit", cause: `${short(processing)} are worked on, and no more may be at once${waiting}`, href: here };
  if (throttled) return { tone: "plain", word: "Throttled", cause: `its rate${view?.policy?.rate ? ` of ${view.policy.rate}` : ""} lets the next one through in ${span(throttled)}${waiting}`, href: here };
  return null;
}

/** Waiting for so long (ms) with nobody at work is no breath between two messages. */
const STALLED = 15_000;
/** From this part of a limit on, it is near. */
const NEARLY = 0.9;

/**
 * What is to be said of one queue, the worst first.
 * @param {QueueStats} stats
 * @param {QueueView | undefined} view
 * @param {Sla | undefined} sla
 * @param {Guard} [guard]
 * @returns {Finding[]}
 */
export function findingsOf(stats, view, sla, guard) {
  const { queue, ready, scheduled, processing, overdue, oldest } = stats;
  /** @type {Finding[]} */
  const found = [];
  const here = href(at`/queues/${queue}`);
  /** @param {Finding["tone"]} tone @param {string} word @param {string} cause @param {string} [where] */
  const say = (tone, word, cause, where = here) => found.push({ tone, word, cause, href: where, queue });
  if (overdue) say("bad", "Overdue", `${plural(overdue, "delivery", "deliveries")} passed ${overdue === 1 ? "its" : "their"} deadline and will be reclaimed`, href("/processing", { queue }));
  const held = holdup(stats, view, guard);
  if (held && (ready || held.tone === "warn")) found.push({ ...held, queue });
  // Quick work is rarely seen in anybody's hands: what was claimed lately is not stalled.
  else if (ready && !processing && oldest > STALLED && !pace(queue, "claimed")) say("bad", "Stalled", `${plural(ready, "message")} wait${ready === 1 ? "s" : ""}, the oldest for ${span(oldest)}, and nothing of it is being worked on`);
  if (sla?.met === false) say("bad", "Late", `p95 of the wait is ${span(sla.p95 ?? 0)}, promised are ${span(sla.target ?? 0)}`);
  const capacity = view?.policy.capacity;
  if (capacity && ready + scheduled >= capacity) say("bad", "Full", `${short(ready + scheduled)} wait, which is its capacity: puts are refused`);
  else if (capacity && ready + scheduled >= NEARLY * capacity) say("warn", "Nearly full", `${short(ready + scheduled)} wait of ${short(capacity)} that may`);
  else if (view?.policy.warn_depth && ready + scheduled >= view.policy.warn_depth) say("warn", "Deep", `${short(ready + scheduled)} wait; it asked to be warned at ${short(view.policy.warn_depth)}`);
  const limit = view?.policy.dead_limit;
  if (limit && stats.dead >= NEARLY * limit) say("warn", "Dead letters", `${short(stats.dead)} dead letters, and ${short(limit)} are kept`, href("/dead", { q: `queue:${queue}` }));
  return found.sort((a, b) => weight(a) - weight(b));
}

/** @param {Finding} finding */
const weight = (finding) => ({ bad: 0, warn: 1, plain: 2 })[finding.tone];

/**
 * What is to be said of the room itself.
 * @param {import("./data.js").Standing} room
 * @param {Record<string, {state: string, reason: string}>} breakers
 * @param {number} diedLately
 * @returns {Finding[]}
 */
export function findingsOfRoom(room, breakers, diedLately) {
  /** @type {Finding[]} */
  const found = [];
  if (!room.ok) found.push({ tone: "bad", word: "Store", cause: `the store cannot be reached: ${room.error}`, href: href("/settings") });
  if (room.ok && !room.keeper) found.push({ tone: "bad", word: "No keeper", cause: "no keeper is running: overdue work is not taken back and schedules stand still", href: href("/settings") });
  if (room.redis_active === false) found.push({ tone: "bad", word: "Spool", cause: `Redis is away: puts go to the local spool, which holds ${short(room.spooled)}`, href: href("/settings") });
  if (room.memory_limit && (room.memory_used ?? 0) >= NEARLY * room.memory_limit) found.push({ tone: "warn", word: "Memory", cause: `the store has used ${Math.round((100 * (room.memory_used ?? 0)) / room.memory_limit)} % of its memory`, href: href("/settings") });
  for (const [name, breaker] of Object.entries(breakers)) {
    if (breaker.state !== "closed") found.push({ tone: breaker.state === "open" ? "bad" : "warn", word: "Breaker", cause: `breaker ${name} is ${breaker.state.replace("_", " ")}${breaker.reason ? `: ${breaker.reason}` : ""}`, href: href("/breakers") });
  }
  if (diedLately > 0) found.push({ tone: "warn", word: "Dead letters", cause: `${plural(diedLately, "message")} died in the last hour`, href: href("/dead") });
  return found;
}
