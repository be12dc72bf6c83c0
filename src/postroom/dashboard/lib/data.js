/** What a page shows: loaded, kept up to date while it is seen, and the old kept while the new comes. */
import { get, Problem } from "./api.js";
import { held, isFlowing, listen } from "./live.js";
import { createStore } from "./store.js";
import { useCallback, useEffect, useRef, useState } from "./ui.js";

/** Events that come together are one reason to look again (ms). */
const GATHER = 250;
/** Looking takes at most one part in so many of our time, however slow the server is. */
const SHARE = 10;

/**
 * Call `work` now, every so often, and soon after something has happened; not while nobody looks.
 * @param {() => Promise<unknown>} work
 * @param {{every?: number, when?: (event: import("./live.js").Event) => boolean}} [options]
 * @returns {{stop: () => void, soon: () => void}}
 */
export function keepUp(work, { every = 5_000, when } = {}) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isOver = false, isRunning = false, isWanted = false;
  const run = async () => {
    clearTimeout(timer);
    if (isRunning) {
      isWanted = true;
      return;
    }
    isRunning = true;
    isWanted = false;
    const begun = performance.now();
    await work().catch(() => undefined);
    isRunning = false;
    const took = performance.now() - begun;
    if (!isOver) timer = setTimeout(tick, isWanted ? Math.max(GATHER, took) : Math.max(every, took * SHARE));
  };
  const tick = () => void (isFlowing() && run());
  const soon = () => {
    isWanted = true;
    if (!isRunning) {
      clearTimeout(timer);
      timer = setTimeout(run, GATHER);
    }
  };
  const wake = () => isFlowing() && run();
  const unlisten = when && listen((event) => isFlowing() && (event.name === "reset" || when(event)) && soon());
  const unhold = held.subscribe(wake);
  document.addEventListener("visibilitychange", wake);
  void run();
  return {
    soon,
    stop: () => {
      isOver = true;
      clearTimeout(timer);
      unlisten?.();
      unhold();
      document.removeEventListener("visibilitychange", wake);
    },
  };
}

/**
 * @template T
 * @typedef {{data: T | undefined, error: Problem | null, reload: () => void}} Loaded
 */

/**
 * Load a route and keep it up to date.
 * @param {string | null} where below api/v1; null loads nothing
 * @param {{every?: number, when?: (event: import("./live.js").Event) => boolean, query?: Record<string, any>, load?: () => Promise<any>}} [options]
 *   load: how, where one request is not enough
 * @returns {Loaded<any>}
 */
export function useLoaded(where, { every, when, query = {}, load } = {}) {
  const [found, setFound] = useState(/** @type {{of: string, data: any, error: Problem | null}} */ ({ of: "", data: undefined, error: null }));
  const of = where === null ? "" : `${where} ${JSON.stringify(query)}`;
  const running = useRef(/** @type {{soon: () => void} | null} */ (null));
  useEffect(() => {
    if (where === null) return undefined;
    const leave = new AbortController();
    const work = async () => {
      try {
        const data = await (load ? load() : get(where, query, leave.signal));
        if (!leave.signal.aborted) setFound({ of, data, error: null });
      } catch (error) {
        if (leave.signal.aborted || !(error instanceof Problem)) return;
        setFound((before) => ({ of, data: before.of === of ? before.data : undefined, error }));
      }
    };
    const kept = keepUp(work, { every, when });
    running.current = kept;
    return () => {
      leave.abort();
      kept.stop();
    };
  }, [of]);
  const reload = useCallback(() => running.current?.soon(), []);
  return found.of === of ? { data: found.data, error: found.error, reload } : { data: undefined, error: null, reload };
}

/**
 * How the whole room stands (`/stats`): loaded once for all who show a part of it.
 * @typedef {{queue: string, ready: number, scheduled: number, processing: number, overdue: number, dead: number,
 *   oldest: number, next_priority: number | null, paused: boolean, paused_until: number | null, throttled: number, counters: Record<string, number>}} QueueStats
 * @typedef {{now: number, ok: boolean, error: string, latency: number, shutdown: boolean, queues: QueueStats[], left_out: number,
 *   engine: string, keeper: boolean, keeper_name: string, next_sweep: number | null, sweep_interval: number, environment: string, environment_colour: string, redis_active: boolean | null, spooled: number, memory_used: number | null, memory_limit: number | null}} Standing
 */
export const standing = createStore(/** @type {Standing | null} */ (null));

/** Events that change no number. */
const QUIET = new Set(["heartbeat", "hello", "audit"]);
/** @type {{soon: () => void} | null} */
let following = null;

/**
 * What each queue did a second, over the last while, by the name of its counter. From two looks at its counters.
 * @param {string} queue @param {string} name @returns {number | null}
 */
export function pace(queue, name) {
  const [first, last] = [looks[0], looks.at(-1)];
  const before = first?.queues.find((each) => each.queue === queue), now = last?.queues.find((each) => each.queue === queue);
  if (!first || !last || !before || !now || last.now - first.now < 1_000) return null;
  return (Math.max(0, now.counters[name] - before.counters[name]) * 1_000) / (last.now - first.now);
}

/** How far back the pace reaches (ms): short enough to be now, long enough to be steady. */
const WHILE = 15_000;
/** @type {Standing[]} */
let looks = [];

async function look() {
  /** @type {Standing} */
  const found = await get("stats");
  looks = [...looks.filter((each) => found.now - each.now < WHILE), found];
  standing.set(found);
}

export function followStanding() {
  following ??= keepUp(look, { every: 2_000, when: (event) => !QUIET.has(event.name) });
}

/** Something was done here: look at once. */
export const lookAgain = () => following?.soon();

/** The sum of a number over all queues. @param {Standing | null} room @param {"ready" | "scheduled" | "processing" | "overdue" | "dead"} name */
export const total = (room, name) => (room?.queues ?? []).reduce((sum, queue) => sum + queue[name], 0);
