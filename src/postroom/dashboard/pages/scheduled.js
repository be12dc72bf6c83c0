/** Scheduled: what waits for its time, why, and the schedules that make more of it. */
import { path, post } from "../lib/api.js";
import { useBrush } from "../lib/brush.js";
import { Countdown } from "../lib/clock.js";
import { lookAgain, standing, useLoaded } from "../lib/data.js";
import { confirm, show } from "../lib/dialog.js";
import { messagesOf } from "../lib/everywhere.js";
import { count, plural, span } from "../lib/format.js";
import { Badge, Card, Empty, Failed, Head, Menu, MessageLink, QueueLink, Tabs } from "../lib/parts.js";
import { at, go, useQuery, useRange } from "../lib/router.js";
import { useRows } from "../lib/rows.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Table, useSelection } from "../lib/table.js";
import { absolute, brief, When } from "../lib/time.js";
import { act, toast } from "../lib/toasts.js";
import { html, useRef, useState } from "../lib/ui.js";
import { guardOf, holdup } from "../lib/verdict.js";

/** How many messages one click may change, one after the other. */
const MOST = 500;

export function Scheduled() {
  const [tab, setTab] = useQuery("tab", "messages");
  return html`<${Head} title="Scheduled"><${Tabs} name="What" value=${tab} set=${setTab}
      options=${[{ value: "messages", words: "Messages" }, { value: "schedules", words: "Schedules" }]} /><//>
    ${tab === "schedules" ? html`<${Schedules} />` : html`<${Messages} />`}`;
}

function Messages() {
  const [queue, setQueue] = useQuery("queue");
  const room = useStore(standing);
  const found = useRows(messagesOf("scheduled", queue), { of: queue, every: 3_000, when: (event) => event.name === "lifecycle" });
  const breakers = useLoaded("breakers", { every: 5_000, when: (event) => event.name === "audit" });
  const all = [...found.rows].sort((a, b) => a.due - b.due);
  const [range, setRange] = useRange("due");
  const rows = range ? all.filter((row) => row.due >= range.from && row.due < range.to) : all;
  const selection = useSelection(queue);
  const mayMove = useCan("move");
  const names = (room?.queues ?? []).filter((each) => each.scheduled).map((each) => each.queue);
  const chosen = rows.filter((row) => selection.selected.has(keyOf(row)));
  const reload = () => (found.reload(), lookAgain());
  const done = () => (selection.set(new Set()), reload());
  return html`<div class="row">
      <select class="narrow" aria-label="Queue" value=${queue} onChange=${(/** @type {any} */ e) => setQueue(e.target.value)}>
        <option value="">All queues</option>${[...new Set([...names, ...(queue ? [queue] : [])])].sort().map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>
      ${mayMove && chosen.length ? html`<span class="selection-bar">
        <button class="button small" onClick=${() => each(chosen, "run-now", () => undefined, "Made ready").then(done)}>Run ${chosen.length} now</button>
        <button class="button small" onClick=${() => show({ title: "Spread out", body: Spread, props: { number: chosen.length } })
          .then((minutes) => minutes && each(chosen, "reschedule", (i) => ({ delay: (i * minutes * 60) / chosen.length }), "Spread out").then(done))}>Spread…</button>
        <button class="button small quiet-danger" onClick=${() => confirm({ title: "Cancel", scope: `Take ${plural(chosen.length, "message")} out of their queues, for good.`, verb: "Take them out", danger: true })
          .then((yes) => yes && each(chosen, "cancel", () => undefined, "Cancelled").then(done))}>Cancel ${chosen.length}…</button></span>` : null}</div>
    ${all.length > 1 ? html`<${Histogram} queue=${queue} hasMore=${found.hasMore} range=${range} set=${setRange} />` : null}
    ${found.error && !rows.length ? html`<${Failed} error=${found.error} retry=${found.reload} />` : html`<${Table} name="Scheduled messages" fill keyOf=${keyOf}
      open=${(/** @type {any} */ row) => go(at`/queues/${row.queue}/messages/${row.id}`)} columns=${columns(mayMove, reload, holdups(room, breakers.data))} selection=${mayMove ? selection : undefined}
      ...${found} rows=${rows} empty=${html`<${Empty} icon="scheduled" title="Nothing waits for its time" command=${"postroom message put emails '{}' --delay 5m"}>
        Messages with a delay are here until they are due, and those whose last attempt failed until they are tried again.<//>`} />`}`;
}

/** @param {any} row */
const keyOf = (row) => `${row.queue} ${row.id}`;

/** What will hold each queue's messages back even when they are due. @param {import("../lib/data.js").Standing | null} room @param {any} breakers */
const holdups = (room, breakers) => new Map((room?.queues ?? []).map((stats) => [stats.queue, holdup(stats, undefined, guardOf(breakers, stats.queue))]));

/** @param {{row: any, held: ReturnType<typeof holdup> | undefined}} props */
const Why = ({ row, held }) => html`${row.attempt ? html`<${Badge} tone="warn">after attempt ${row.attempt}<//>`
  : row.deliveries ? html`<${Badge} tone="warn" title="It was claimed and handed back for a while; that is no attempt. A handler does so when a breaker is open, or the same work is being done elsewhere.">put off<//>`
  : html`<${Badge}>delayed<//>`}${held ? html` <${Badge} tone=${held.tone} title=${`Its queue: ${held.cause}`}>${held.word.toLowerCase()}<//>` : null}`;

/** @param {boolean} mayMove @param {() => void} reload @param {ReturnType<typeof holdups>} held */
const columns = (mayMove, reload, held) => [
  { id: "id", title: "Message", cell: (/** @type {any} */ row) => html`<${MessageLink} queue=${row.queue} id=${row.id} />` },
  { id: "task", title: "Kind", cell: (/** @type {any} */ row) => row.task_name || row.kind || "—" },
  { id: "queue", title: "Queue", wide: true, cell: (/** @type {any} */ row) => html`<${QueueLink} queue=${row.queue} />` },
  { id: "why", title: "Why it waits", wide: true, cell: (/** @type {any} */ row) => html`<${Why} row=${row} held=${held.get(row.queue)} />` },
  { id: "put", title: "Put", wide: true, cell: (/** @type {any} */ row) => html`<${When} at=${row.put_at} />` },
  { id: "due", title: "Due in", cell: (/** @type {any} */ row) => (row.gone ? html`<${Badge} tone="good">Left<//>` : html`<${Countdown} deadline=${row.due} over="due" />`) },
  ...(mayMove ? [{ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => (row.gone ? null : html`<${Actions} row=${row} reload=${reload} />`) }] : []),
];

/** @param {{row: any, reload: () => void}} props */
function Actions({ row, reload }) {
  const where = path`queues/${row.queue}/messages/${row.id}`;
  /** @param {any} given */
  const reschedule = (given) => act(() => post(`${where}/reschedule`, given), {
    doing: "reschedule it", done: (found) => `Due at ${absolute(found.due)}.`, undo: () => post(`${where}/reschedule`, { at: row.due / 1_000 }),
  }).then(reload);
  return html`<${Menu} label=${`Actions for ${row.id}`} items=${[
    { words: "Run now", icon: "play", run: () => act(() => post(`${where}/run-now`), { doing: "run it now", done: "It is ready.", undo: () => post(`${where}/reschedule`, { at: row.due / 1_000 }) }).then(reload) },
    { words: "Reschedule…", icon: "clock", run: () => show({ title: "Reschedule", body: Reschedule, props: { due: row.due } }).then((given) => given && reschedule(given)) },
    { words: "Cancel…", icon: "trash", danger: true, run: () => confirm({ title: "Cancel", scope: "Take this message out of its queue, for good.", verb: "Take it out", danger: true })
      .then((yes) => yes && act(() => post(`${where}/cancel`), { doing: "cancel it", done: "Cancelled." }).then(reload)) },
  ]} />`;
}

/**
 * The same for each, one after the other; what is refused (it may have left) does not hold up the rest.
 * @param {any[]} rows @param {string} verb @param {(i: number) => any} body @param {string} did
 */
async function each(rows, verb, body, did) {
  let well = 0;
  for (const [i, row] of rows.slice(0, MOST).entries()) {
    await post(path`queues/${row.queue}/messages/${row.id}` + `/${verb}`, body(i)).then(() => { well += 1; }, () => undefined);
  }
  const left = rows.length - well;
  toast({ text: `${did}: ${plural(well, "message")}.`, detail: left ? `${plural(left, "message")} had left or changed.` : undefined });
}

/** @param {{due: number, close: (given?: any) => void}} props */
function Reschedule({ due, close }) {
  const [delay, setDelay] = useState("");
  const [moment, setMoment] = useState("");
  const given = delay.trim() ? { delay: delay.trim() } : moment ? { at: new Date(moment).getTime() / 1_000 } : null;
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); if (given) close(given); }}>
    <p class="muted">It is due <${When} at=${due} />, at ${absolute(due)}.</p>
    <label class="field"><span>From now <em>30s, 15m, 2h, 3d</em></span><input autofocus value=${delay} onInput=${(/** @type {any} */ e) => setDelay(e.target.value)} /></label>
    <label class="field"><span>Or at <em>your time</em></span><input type="datetime-local" step="1" value=${moment} disabled=${Boolean(delay.trim())} onInput=${(/** @type {any} */ e) => setMoment(e.target.value)} /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!given}>Reschedule</button></footer></form>`;
}

/** @param {{number: number, close: (minutes?: number) => void}} props */
function Spread({ number, close }) {
  const [minutes, setMinutes] = useState("10");
  const value = Number(minutes);
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); if (value > 0) close(value); }}>
    <p class="scope">Let ${plural(number, "message")} come one after the other, from now on.</p>
    <label class="field"><span>Over so many minutes</span><input type="number" min="1" autofocus value=${minutes} onInput=${(/** @type {any} */ e) => setMinutes(e.target.value)} /></label>
    ${value > 0 ? html`<p class="muted">One every ${span((value * 60_000) / number)}.</p>` : null}
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!(value > 0)}>Spread out</button></footer></form>`;
}

const BARS = 48;
/** How far ahead the histogram looks. */
const AHEAD = [["", "All"], ["10m", "Next 10 min"], ["1h", "Next hour"], ["1d", "Next day"], ["30d", "Next 30 days"]];

/** @typedef {import("../lib/router.js").Range} Range */

/**
 * When how many are due, all of them, counted by the store; a part that is drawn over is all that the table shows.
 * @param {{queue: string, hasMore: boolean, range: Range | null, set: (range: Range | null) => void}} props
 */
function Histogram({ queue, hasMore, range, set }) {
  const [ahead, setAhead] = useQuery("ahead");
  const { data } = useLoaded("upcoming", { every: 3_000, query: { queue: queue || null, over: ahead || null, bars: BARS }, when: (event) => event.name === "lifecycle" });
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const { now: first = 0, until: last = 1, counts = [], overdue = 0, later = 0, whole = true } = data ?? {};
  const brush = useBrush(box, (from, to) => data && set({ from: Math.floor(first + (last - first) * from), to: Math.ceil(first + (last - first) * to) }));
  const high = Math.max(1, ...counts), sum = overdue + counts.reduce((/** @type {number} */ all, /** @type {number} */ each) => all + each, 0);
  const words = data ? `${plural(sum, "message")} due until ${brief(last)}; at most ${count(Math.max(0, ...counts))} within ${span((last - first) / BARS)}` : "…";
  const rest = [overdue ? `${count(overdue)} due already` : "", later ? `${count(later)} later` : "", whole ? "" : "and more than could be counted"].filter(Boolean).join(", ");
  const mark = brush.drawn ?? (range && [(range.from - first) / (last - first), (range.to - first) / (last - first)]);
  return html`<section class="card histogram" aria-label="When they are due"><div class="row"><${Tabs} name="How far ahead" value=${ahead} set=${setAhead} options=${AHEAD.map(([value, each]) => ({ value, words: each }))} />
      ${range ? html`<span class="selection-bar" role="status"><span>Due ${brief(range.from)} – ${brief(range.to)}${hasMore ? html` <span class="muted">of what is loaded</span>` : null}</span><button class="button small" onClick=${() => set(null)}>Show all</button></span>` : html`<span class="faint hint">Draw over the bars to see only those.</span>`}</div>
    <figure role="img" aria-label=${words}><div ref=${box} class="histogram-bars" aria-hidden="true" ...${brush.on}>
      ${counts.map((/** @type {number} */ bar, /** @type {number} */ i) => html`<i key=${i} title=${`${brief(first + ((last - first) * i) / BARS)}: ${count(bar)}`} style=${{ height: `${(bar / high) * 100}%` }}></i>`)}
      ${mark ? html`<b class="brush" style=${{ left: `${100 * Math.max(0, mark[0])}%`, right: `${100 * Math.max(0, 1 - mark[1])}%` }}></b>` : null}</div>
    <figcaption><span>now</span><span>${words}${rest ? html` <span class="faint">(${rest})</span>` : null}</span><span>${data ? brief(last) : ""}</span></figcaption></figure></section>`;
}

function Schedules() {
  const { data, error, reload } = useLoaded("schedules", { every: 5_000, when: (event) => event.name === "audit" });
  const may = useCan("schedule");
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  /** @param {any} each @param {string} verb @param {string} done @param {string} [back] */
  const run = (each, verb, done, back) => act(() => post(path`schedules/${each.name}` + `/${verb}`), {
    doing: `${verb} ${each.name}`, done, undo: back ? () => post(path`schedules/${each.name}` + `/${back}`).then(reload) : undefined,
  }).then(() => (reload(), lookAgain()));
  return html`<${Card} flush><${Table} name="Schedules" rows=${data ?? []} isLoading=${!data} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
    { id: "name", title: "Schedule", cell: (/** @type {any} */ row) => html`<strong>${row.name}</strong>` },
    { id: "when", title: "When", cell: (/** @type {any} */ row) => html`<code>${row.cron || `every ${row.every}`}</code>${row.timezone && row.cron ? html` <span class="faint">${row.timezone}</span>` : null}` },
    { id: "queue", title: "Queue", wide: true, cell: (/** @type {any} */ row) => html`<${QueueLink} queue=${row.queue} />` },
    { id: "kind", title: "Kind", wide: true, cell: (/** @type {any} */ row) => row.kind || "—" },
    { id: "next", title: "Next", cell: (/** @type {any} */ row) => (row.paused ? html`<${Badge} tone="warn" title=${row.reason}>paused<//>` : html`<${Countdown} deadline=${row.next_slot} over="now" />`) },
    ...(may ? [{ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => html`<${Menu} label=${`Actions for ${row.name}`} items=${[
      { words: "Run now", icon: "play", run: () => run(row, "run-now", `One message of ${row.name} is put.`) },
      row.paused ? { words: "Resume", icon: "play", run: () => run(row, "resume", `${row.name} goes on with its next slot.`, "pause") }
        : { words: "Pause", icon: "pause", run: () => run(row, "pause", `${row.name} is paused, in every process.`, "resume") },
    ]} />` }] : []),
  ]} empty=${html`<${Empty} icon="scheduled" title="No schedules" command="postroom schedule ls">A table [schedule.NAME] in postroom.toml puts a message at its times, however many keepers run.<//>`} /><//>`;
}
