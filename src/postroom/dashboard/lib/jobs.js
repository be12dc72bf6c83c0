/** Bulk work on the server: followed until it ends, also when it was begun in another tab or by somebody else. */
import { get, path, post } from "./api.js";
import { keepUp, lookAgain } from "./data.js";
import { count, plural } from "./format.js";
import { Icon } from "./icons.js";
import { can } from "./session.js";
import { createStore, useStore } from "./store.js";
import { act, toast } from "./toasts.js";
import { html, useEffect } from "./ui.js";

/** @typedef {{id: string, action: "replay" | "discard", name: string | null, state: string, by: string, done: number, total: number,
 *   scanned: number, cancel: boolean, reason: string, ended_at: number | null,
 *   options: Record<string, any>, result: {already: number, refused: number} | null}} Job */

/** Pages of old jobs that are looked through for one that still runs. */
const PAGES = 20;
const running = createStore(/** @type {Job[]} */ ([]));
/** Up to which job we have looked. */
let cursor = "";

async function look() {
  const open = await Promise.all(running.get().map((job) => get(path`jobs/${job.id}`)));
  /** @type {Job[]} */
  const fresh = [];
  for (let page = 0; page < PAGES; page += 1) {
    const found = await get("jobs", { cursor });
    fresh.push(...found.jobs);
    cursor = found.jobs.at(-1)?.id ?? cursor;
    if (!found.cursor) break;
  }
  const ended = open.filter((job) => job.ended_at);
  ended.forEach(tell);
  if (ended.length) lookAgain();
  running.set([...open, ...fresh].filter((job, i, all) => !job.ended_at && all.findIndex((each) => each.id === job.id) === i));
}

/** Show at once what was just begun. @param {Job} job */
export const follow = (job) => running.update((jobs) => (jobs.some((each) => each.id === job.id) ? jobs : [...jobs, job]));

/** @param {Job} job */
function tell(job) {
  const did = `${job.action === "replay" ? "Replayed" : "Discarded"} ${plural(job.done, "dead letter")}`;
  if (job.state === "done") toast({ text: `${did}.`, detail: leftover(job) });
  else toast({ kind: "failed", text: `${did}, then ${job.state}.`, detail: job.reason });
}

/** @param {Job} job */
function leftover({ result }) {
  const parts = [result?.already && `${count(result.already)} had been replayed before`, result?.refused && `${count(result.refused)} were refused`];
  return parts.filter(Boolean).join(", ") || undefined;
}

/** The jobs that run, each with how far it is and a way to end it. */
export function Jobs() {
  const jobs = useStore(running);
  useEffect(() => keepUp(look, { every: 1_000 }).stop, []);
  if (!jobs.length) return null;
  return html`<section class="jobs" aria-label="Jobs">${jobs.map((job) => html`<div key=${job.id} class="job">
    <${Icon} name=${job.action === "replay" ? "replay" : "trash"} />
    <span class="job-words"><strong>${job.action === "replay" ? "Replaying" : "Discarding"}</strong> ${where(job)}${
      job.options.rate ? html` <span class="faint">at ${job.options.rate}</span>` : null}${job.options.canary ? html` <span class="faint">one first</span>` : null}</span>
    <progress aria-label="Progress" max=${Math.max(1, job.total)} value=${job.done}></progress>
    <span class="job-count">${count(job.done)}${job.total ? ` of ${count(job.total)}` : ""}</span>
    ${can("replay") ? html`<button class="button small" disabled=${job.cancel} onClick=${() => cancel(job)}>${job.cancel ? "Ending…" : "Stop"}</button>` : null}
  </div>`)}</section>`;
}

/** @param {Job} job */
const where = (job) => (job.name ? `in ${job.name}` : "everywhere");
/** @param {Job} job */
const cancel = (job) => act(() => post(path`jobs/${job.id}/cancel`), { doing: `stop the ${job.action}`, done: "It ends after its present step; what was done stays done." });
