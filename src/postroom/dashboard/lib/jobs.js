/** Bulk work on the server: followed until it ends, also when it was begun in another tab or by somebody else. */
import { get, path, post } from "./api.js";
import { Countdown, now } from "./clock.js";
import { keepUp, lookAgain } from "./data.js";
import { show } from "./dialog.js";
import { count, plural } from "./format.js";
import { Icon } from "./icons.js";
import { href } from "./router.js";
import { can } from "./session.js";
import { createStore, useStore } from "./store.js";
import { act, toast } from "./toasts.js";
import { html, useEffect } from "./ui.js";

/** @typedef {{id: string, action: "replay" | "discard", name: string | null, state: string, by: string, done: number, total: number,
 *   scanned: number, cancel: boolean, pause: boolean, why: string, begins: number, reason: string, ended_at: number | null,
 *   ids: string[] | null, options: Record<string, any>, result: {already: number, refused: number, ids: string[], refusals: {id: string, reason: string}[]} | null}} Job */

/** Pages of old jobs that are looked through for one that still runs. */
const PAGES = 20;
/** How often it is looked for jobs (ms): while there are some, and else, since others may begin one. */
const OFTEN = 1_000, SELDOM = 15_000;
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
  if (job.state === "cancelled" && !job.done && job.begins) toast({ text: "Undone.", detail: `Nothing was ${job.action === "replay" ? "replayed" : "discarded"}.` });
  else if (job.state === "done") toast({ text: `${did}.`, detail: leftover(job), more: hasMore(job) ? { words: "See them", run: () => void show({ title: `${did}`, body: Outcome, props: { job } }) } : undefined });
  else toast({ kind: "failed", text: `${did}, then ${job.state}.`, detail: job.reason });
}

/** @param {Job} job */
const hasMore = ({ action, result }) => Boolean((action === "replay" && result?.ids.length) || result?.refusals.length);

/** What came of a job: the new messages, and what was refused and why. @param {{job: Job, close: () => void}} props */
const Outcome = ({ job: { done, result, action }, close }) => html`<div class="dialog-body">
  ${action === "replay" && result?.ids.length ? html`<table aria-label="New messages"><thead><tr><th scope="col">New message</th></tr></thead><tbody>${result.ids.map((id) => html`<tr key=${id}><td><a class="id" href=${href("/find", { id })} onClick=${() => close()}>${id}</a></td></tr>`)}</tbody></table>
    ${done > result.ids.length ? html`<p class="faint">and ${count(done - result.ids.length)} more</p>` : null}` : null}
  ${result?.refusals.length ? html`<table aria-label="Refused"><thead><tr><th scope="col">Refused</th><th scope="col">Why</th></tr></thead><tbody>${result.refusals.map(({ id, reason }) => html`<tr key=${id}><td><a class="id" href=${href("/find", { id })} onClick=${() => close()}>${id}</a></td><td>${reason}</td></tr>`)}</tbody></table>` : null}</div>`;

/** @param {Job} job */
function leftover({ result }) {
  const parts = [result?.already && `${count(result.already)} had been replayed before`, result?.refused && `${count(result.refused)} were refused`];
  return parts.filter(Boolean).join(", ") || undefined;
}

/** Whether a job has not begun, so that to end it is to undo it. @param {Job} job */
const isAhead = (job) => job.begins > now() && job.state === "waiting";

/** The jobs that run, each with how far it is and a way to end it; and those that will, each with a way back. */
export function Jobs() {
  const jobs = useStore(running);
  const every = jobs.length ? OFTEN : SELDOM;
  useEffect(() => keepUp(look, { every, when: (event) => event.name === "audit" }).stop, [every]);
  if (!jobs.length) return null;
  return html`<section class="jobs" aria-label="Jobs">${jobs.map((job) => (isAhead(job) ? html`<${Ahead} key=${job.id} job=${job} />` : html`<div key=${job.id} class="job" title=${job.why || undefined}>
    <${Icon} name=${job.action === "replay" ? "replay" : "trash"} />
    <span class="job-words"><strong>${job.pause ? "Paused" : job.action === "replay" ? "Replaying" : "Discarding"}</strong> ${where(job)}${
      job.options.rate ? html` <span class="faint">at ${job.options.rate}</span>` : null}${job.options.canary ? html` <span class="faint">one first</span>` : null}</span>
    <progress aria-label="Progress" max=${Math.max(1, job.total)} value=${job.done}></progress>
    <span class="job-count">${count(job.done)}${job.total ? ` of ${count(job.total)}` : ""}</span>
    ${can("replay") ? html`<button class="button small" disabled=${job.cancel} onClick=${() => rest(job)}>${job.pause ? "Resume" : "Pause"}</button>
      <button class="button small" disabled=${job.cancel} onClick=${() => cancel(job)}>${job.cancel ? "Ending…" : "Stop"}</button>` : null}
  </div>`))}</section>`;
}

/** @param {{job: Job}} props */
const Ahead = ({ job }) => html`<div class="job"><${Icon} name="trash" /><span class="job-words"><strong>To be discarded</strong> ${where(job)}
    <span class="muted">by ${job.by}, in</span> <${Countdown} deadline=${job.begins} over="a moment" /></span>
  <span class="faint">${job.ids ? plural(job.ids.length, "letter") : "all that matched"}</span>
  ${can("replay") ? html`<button class="button small" disabled=${job.cancel} onClick=${() => undo(job)}>${job.cancel ? "Undoing…" : "Undo"}</button>` : null}</div>`;

/** @param {Job} job */
export const undo = (job) => act(() => post(path`jobs/${job.id}/cancel`), { doing: "undo it" }).then(() => running.update((jobs) => jobs.map((each) => (each.id === job.id ? { ...each, cancel: true } : each))));

/** @param {Job} job */
const where = (job) => (job.name ? `in ${job.name}` : "everywhere");
/** Have it rest, or go on. @param {Job} job */
const rest = (job) => act(() => post(path`jobs/${job.id}` + (job.pause ? "/resume" : "/pause")), { doing: `${job.pause ? "resume" : "pause"} the ${job.action}` })
  .then((told) => told && running.update((jobs) => jobs.map((each) => (each.id === job.id ? told : each))));
/** @param {Job} job */
const cancel = (job) => act(() => post(path`jobs/${job.id}/cancel`), { doing: `stop the ${job.action}`, done: "It ends after its present step; what was done stays done." });
