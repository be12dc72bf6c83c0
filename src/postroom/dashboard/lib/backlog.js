/** What waits in the queues that are in sight: ready by priority, and how much of what is scheduled was tried before. */
import { get } from "./api.js";
import { useLoaded } from "./data.js";
import { short } from "./format.js";
import { Bar } from "./parts.js";
import { html, useRef } from "./ui.js";

/**
 * @typedef {{priority: number, count: number}} Level
 * @typedef {{queue: string, levels: Level[], levels_whole: boolean, retrying: number, retrying_whole: boolean}} Backlog
 * @typedef {Record<string, number>} Labels
 */

/** Queues that the server tells of in one answer. */
const MOST = 100;
/** Levels that have a part of the bar and a name; more are one part together. */
const SHOWN = 5;
/** What a put is, where a queue has no name for it. */
const NORMAL = 5;

/**
 * The backlogs of these queues, as far as they are known; where nothing waits, nobody is asked.
 * @param {string[]} queues @param {import("./data.js").QueueStats[]} stats @returns {Map<string, Backlog>}
 */
export function useBacklogs(queues, stats) {
  // Kept over every change of what is in sight: a row that comes back has its numbers at once.
  const known = useRef(/** @type {Map<string, Backlog>} */ (new Map()));
  const waiting = useRef(/** @type {string[]} */ ([]));
  const filled = new Set(stats.filter((each) => each.ready || each.scheduled).map((each) => each.queue));
  waiting.current = queues.filter((queue) => filled.has(queue)).slice(0, MOST);
  const load = async () => {
    if (!waiting.current.length) return [];
    const { backlogs } = await get("backlogs", { queue: waiting.current });
    for (const each of backlogs) known.current.set(each.queue, each);
    return backlogs;
  };
  useLoaded(queues.length ? "backlogs" : null, { query: { queue: queues }, load, every: 5_000, when: (event) => event.name === "lifecycle" });
  return known.current;
}

/** How many will be tried again: "12+" where not all could be looked at; undefined while nobody knows. @param {Backlog | undefined} backlog @param {number} scheduled */
export function retryingOf(backlog, scheduled) {
  if (!scheduled) return "0";
  if (!backlog || (!backlog.retrying && !backlog.retrying_whole)) return undefined;
  return `${short(backlog.retrying)}${backlog.retrying_whole ? "" : "+"}`;
}

/** Ready messages by priority, the most urgent first. @param {{backlog: Backlog, labels?: Labels}} props */
export function LevelBar({ backlog, labels = {} }) {
  const names = new Map(Object.entries(labels).map(([name, level]) => [level, name]));
  const { named, others } = folded(backlog.levels);
  const parts = named.map(({ priority, count }) => ({ value: count, tone: urgency(priority, labels.normal ?? NORMAL), words: `${short(count)} ${names.get(priority) ?? `at level ${priority}`}` }));
  const rest = others.reduce((sum, { count }) => sum + count, 0);
  if (rest) parts.push({ value: rest, tone: "plain", words: `${short(rest)} at ${others.length} other levels` });
  return html`<${Bar} parts=${parts} about=${backlog.levels_whole ? "" : "at least "} />`;
}

/** Above what is normal, normal, or below: the same in every row, so that rows can be compared. @param {number} priority @param {number} normal */
const urgency = (priority, normal) => (priority > normal ? "high" : priority < normal ? "low" : "normal");

/** The levels that most wait at, in their order, and all others. @param {Level[]} levels */
function folded(levels) {
  if (levels.length <= SHOWN) return { named: levels, others: [] };
  const largest = new Set([...levels].sort((a, b) => b.count - a.count).slice(0, SHOWN - 1));
  return { named: levels.filter((each) => largest.has(each)), others: levels.filter((each) => !largest.has(each)) };
}
