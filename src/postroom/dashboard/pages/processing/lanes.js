/** Who worked on what over the last five minutes: a lane for each worker, a bar for each message. */
import { now } from "../../lib/clock.js";
import { useLoaded } from "../../lib/data.js";
import { plural, span } from "../../lib/format.js";
import { Card, Empty } from "../../lib/parts.js";
import { at, href } from "../../lib/router.js";
import { html, useRef } from "../../lib/ui.js";

/** How far back it reaches (ms), every how much there is a mark, and how many bars lie above each other in one lane. */
const BACK = 300_000, STEP = 60_000, DEEP = 8;
/** A worker that tells so many runs may have had more before them. */
const TOLD = 60;

/** @typedef {{key: string, queue: string, id: string, kind: string, from: number, to: number, how: "running" | "overdue" | "done" | "failed" | "back"}} Bar */

/** @type {Record<string, Bar["how"]>} */
const ENDS = { ack: "done", retry: "failed", bury: "failed", release: "back" };
/** @type {Record<Bar["how"], string>} */
const WORDS = { running: "running", overdue: "overdue", done: "done", failed: "failed", back: "handed back" };

/** @param {{rows: any[], outcomes: Map<string, string>}} props rows: what is processing, as it is filtered; outcomes: what became of what was taken back */
export function Lanes({ rows, outcomes }) {
  const { data } = useLoaded("workers", { every: 5_000 });
  const seen = useRef(/** @type {Map<string, {owner: string, bar: Bar}>} */ (new Map()));
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  const end = now(), lanes = lanesOf(data.workers, rows, outcomes, seen.current, end);
  if (!lanes.length) return html`<${Card}><${Empty} icon="workers" title="Nobody has worked lately">What workers run now stands here, and what they have run within five minutes, if it took a quarter of a second or more.<//><//>`;
  /** From when on a worker's runs are all told. @param {string} name */
  const known = (name) => data.workers.filter((/** @type {any} */ worker) => worker.name === name && worker.runs.length >= TOLD).map((/** @type {any} */ worker) => worker.last_seen - worker.runs[0].ago - worker.runs[0].ran)[0] ?? 0;
  return html`<${Card} flush title="Last five minutes" actions=${html`<span class="gantt-key">${Object.entries(WORDS).map(([how, words]) => html`<span key=${how}><i class=${how} aria-hidden="true"></i>${words}</span>`)}</span>`}>
    <ul class="gantt">${lanes.map(([name, bars]) => html`<${Lane} key=${name} name=${name} bars=${bars} end=${end} known=${known(name)} />`)}</ul>
    <div class="gantt-axis faint" aria-hidden="true"><span></span><div>${Array.from({ length: BACK / STEP + 1 }, (_, i) => html`<span key=${i}>${i === BACK / STEP ? "now" : `−${BACK / STEP - i} min`}</span>`)}</div></div><//>`;
}

/**
 * The bars of each worker: what it told that it has done, what is being done by its name, and what this tab has seen end: a worker
 * tells its runs only every ten seconds.
 * @param {any[]} workers @param {any[]} rows @param {Map<string, string>} outcomes @param {Map<string, {owner: string, bar: Bar}>} seen @param {number} end
 * @returns {[string, Bar[]][]}
 */
function lanesOf(workers, rows, outcomes, seen, end) {
  /** @type {Map<string, Bar[]>} */
  const lanes = new Map(workers.map((worker) => [worker.name, []]));
  for (const worker of workers) {
    for (const run of worker.runs) {
      const to = worker.last_seen - run.ago;
      lanes.get(worker.name)?.push({ key: `${run.id} ${run.ago}`, queue: run.queue, id: run.id, kind: run.kind || run.queue, from: to - run.ran, to, how: ENDS[run.verb] ?? "done" });
    }
  }
  for (const row of rows) {
    if (row.gone || !row.started_at) continue;
    const owner = workers.find((worker) => worker.name === row.consumer || worker.ids.includes(row.id))?.name ?? (row.consumer || "somebody");
    const key = `${row.queue} ${row.id} ${row.started_at}`;
    seen.set(key, { owner, bar: { key, queue: row.queue, id: row.id, kind: row.task_name || row.kind || row.queue, from: row.started_at, to: end, how: row.deadline != null && row.deadline <= end ? "overdue" : "running" } });
  }
  const told = new Set(workers.flatMap((worker) => worker.runs.map((/** @type {any} */ run) => `${run.queue} ${run.id}`)));
  for (const [key, { owner, bar }] of seen) {
    const runs = bar.to === end, isKnown = !runs && told.has(`${bar.queue} ${bar.id}`);
    if (isKnown || bar.to < end - BACK) seen.delete(key);
    else {
      if (!lanes.has(owner)) lanes.set(owner, []);
      lanes.get(owner)?.push(runs ? bar : { ...bar, how: outcomes.has(`${bar.queue} ${bar.id}`) ? "failed" : "done" });
    }
  }
  return [...lanes].map(([name, bars]) => /** @type {[string, Bar[]]} */ ([name, bars.filter((bar) => bar.to > end - BACK).sort((a, b) => a.from - b.from)])).sort(([a], [b]) => a.localeCompare(b));
}

/** Each bar in the first row that is free when it begins. @param {Bar[]} bars @returns {{bar: Bar, row: number}[]} */
function packed(bars) {
  /** @type {number[]} */
  const free = [];
  return bars.map((bar) => {
    const found = free.findIndex((until) => until <= bar.from), row = found < 0 ? free.length : found;
    free[row] = bar.to;
    return { bar, row };
  });
}

/** @param {{name: string, bars: Bar[], end: number, known: number}} props */
function Lane({ name, bars, end, known }) {
  const placed = packed(bars), shown = placed.filter(({ row }) => row < DEEP), hidden = placed.length - shown.length;
  const deep = Math.max(1, ...shown.map(({ row }) => row + 1));
  const share = bars.reduce((all, bar) => all + Math.min(bar.to, end) - Math.max(bar.from, end - BACK), 0);
  return html`<li class="gantt-lane"><div class="lane-name"><b title=${name}>${name}</b><span class="faint">${bars.length ? `${span(share)} of work` : "nothing that took a while"}${hidden ? `, ${plural(hidden, "more bar")}` : ""}</span></div>
    <ul class="gantt-rows" aria-label=${`Runs of ${name}`} style=${{ "--deep": deep }}>${known > end - BACK ? html`<li key="before" class="gantt-before" title=${`It has run more than ${TOLD} in five minutes: those before are not told`} style=${{ width: `${100 * (1 - (end - known) / BACK)}%` }}><span class="sr-only">Earlier runs are not told</span></li>` : null}${shown.map(({ bar, row }) => html`<li key=${bar.key}><${Piece} bar=${bar} row=${row} end=${end} /></li>`)}</ul></li>`;
}

/** @param {{bar: Bar, row: number, end: number}} props */
function Piece({ bar, row, end }) {
  const from = Math.max(0, 1 - (end - bar.from) / BACK), to = Math.min(1, 1 - (end - bar.to) / BACK);
  const words = `${bar.kind}, ${WORDS[bar.how]} ${bar.how === "running" || bar.how === "overdue" ? "for" : "after"} ${span(bar.to - bar.from)}`;
  const style = { left: `${100 * from}%`, width: `${100 * (to - from)}%`, "--row": row };
  const text = html`<span aria-hidden="true">${bar.kind}</span>`;
  // What was done is mostly gone: there is no page to go to.
  return bar.how === "done" ? html`<span class="gantt-bar done" role="img" style=${style} title=${words} aria-label=${words}>${text}</span>`
    : html`<a class=${`gantt-bar ${bar.how}`} style=${style} title=${words} aria-label=${words} href=${href(at`/queues/${bar.queue}/messages/${bar.id}`)}>${text}</a>`;
}
