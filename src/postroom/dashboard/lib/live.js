/**
 * Live events: one stream for this tab, read by fetch, so that it can resume behind the last event it saw
 * whatever ended it: the server, the network, or a tab that slept.
 */
import { BASE, watch } from "./api.js";
import { setTime } from "./clock.js";
import { createKept, createStore } from "./store.js";

/** @typedef {"connecting" | "live" | "polling" | "paused" | "offline"} State */
/** @type {import("./store.js").Store<State>} */
export const state = createStore(/** @type {State} */ ("connecting"));
/** "yes": this person wants the screen to stand still. */
export const held = createKept("held", "no");

/** The server beats every 15 s; without a word for longer than that, the line is dead (ms). */
const SILENCE = 40_000;
const WAITS = [500, 1_000, 2_000, 4_000, 8_000];
/** A tab that is not seen keeps its line for so long (ms). */
const SLEEP = 10_000;

/** @typedef {{name: string, data: any}} Event */
/** @type {Set<(event: Event) => void>} */
const listeners = new Set();
let lastId = "", topics = "lifecycle,overdue", tries = 0;
/** @type {AbortController | null} */
let line = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let again;
let isReachable = true, hasBegun = false;

/**
 * Hear every event: "lifecycle", "requeue", "move_to_dlq", "audit", and "reset" when some were missed, so that
 * everything has to be loaded again. @param {(event: Event) => void} listener @returns {() => void}
 */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether what is shown may change by itself. */
export const isFlowing = () => held.get() !== "yes" && !document.hidden;

/** Begin, with the feeds that this person may hear. @param {{audit: boolean}} may */
export function begin(may) {
  topics = may.audit ? "lifecycle,overdue,audit" : "lifecycle,overdue";
  if (hasBegun) return;
  hasBegun = true;
  held.subscribe(follow);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) follow();
    else setTimeout(() => document.hidden && follow(), SLEEP);
  });
  window.addEventListener("online", follow);
  window.addEventListener("pagehide", hangUp);
  window.addEventListener("pageshow", follow);
  watch((problem) => {
    const before = isReachable;
    isReachable = problem?.status !== 0;
    if (isReachable && !before) tries = 0;
    if (isReachable !== before) show();
  });
  follow();
}

function follow() {
  if (!isFlowing()) hangUp();
  else if (!line) void connect();
  show();
}

function hangUp() {
  clearTimeout(again);
  again = undefined;
  line?.abort();
  line = null;
}

function show(isOpen = false) {
  if (held.get() === "yes") state.set("paused");
  else if (isOpen) state.set("live");
  else if (!isReachable) state.set("offline");
  else if (state.get() === "live" && line) return;
  else state.set(tries > 1 ? "polling" : "connecting");
}

async function connect() {
  clearTimeout(again);
  const mine = new AbortController();
  line = mine;
  try {
    await read(mine);
  } catch {
    // Whatever it was: the next try shows whether it is over.
  }
  if (line !== mine) return;
  line = null;
  tries += 1;
  state.set("connecting");
  show();
  if (isFlowing()) again = setTimeout(() => isFlowing() && !line && connect(), wait());
}

const wait = () => WAITS[Math.min(tries, WAITS.length) - 1] * (0.75 + Math.random() / 2);

/** @param {AbortController} mine */
async function read(mine) {
  const headers = { accept: "text/event-stream", ...(lastId ? { "last-event-id": lastId } : {}) };
  const response = await fetch(`${BASE}events?topics=${topics}`, { headers, signal: mine.signal });
  if (!response.ok || !response.body) throw new Error(`events: ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => mine.abort(), SILENCE);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = /** @type {string} */ (frames.pop());
    for (const frame of frames) hear(frame);
  }
}

/** @param {string} frame */
function hear(frame) {
  let name = "message", data = "";
  for (const text of frame.split("\n")) {
    if (text.startsWith("event: ")) name = text.slice(7);
    else if (text.startsWith("data: ")) data += text.slice(6);
    else if (text.startsWith("id: ")) lastId = text.slice(4);
  }
  const event = { name, data: data ? JSON.parse(data) : null };
  if (typeof event.data?.server_time === "number") setTime(event.data.server_time, 300);
  if (name === "hello") {
    tries = 0;
    isReachable = true;
    show(true);
  }
  for (const listener of [...listeners]) listener(event);
}
