/** Queues: all of them, how each stands, and its verdict in a word. */
import { path, post } from "../lib/api.js";
import { LevelBar, retryingOf, useBacklogs } from "../lib/backlog.js";
import { Sparkline } from "../lib/chart.js";
import { Countdown } from "../lib/clock.js";
import { lookAgain, pace, standing, useLoaded } from "../lib/data.js";
import { confirm, show } from "../lib/dialog.js";
import { plural, rate, short, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { Badge, Bar, Empty, GroupedLink, Head, Menu, Tabs } from "../lib/parts.js";
import { at, go, useQuery } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Table } from "../lib/table.js";
import { brief } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html, useState } from "../lib/ui.js";
import { findingsOf, guardOf } from "../lib/verdict.js";

/** @typedef {import("../lib/verdict.js").QueueView} QueueView */

export function Queues() {
  const room = useStore(standing);
  const views = useLoaded("queues", { every: 5_000, when: (event) => event.name === "lifecycle" });
  const sla = useLoaded("sla", { every: 10_000, query: { over: "5m" } });
  const trends = useLoaded("samples/queues", { every: 60_000 });
  const workers = useLoaded("workers", { every: 10_000 });
  const breakers = useLoaded("breakers", { every: 5_000, when: (event) => event.name === "audit" });
  const [wanted, setWanted] = useQuery("name");
  const stats = (room?.queues ?? []).filter(({ queue }) => queue.toLowerCase().includes(wanted.toLowerCase()));
  return html`<${Head} title="Queues" sub=${room ? plural(room.queues.length, "queue") + (room.left_out ? `, and ${room.left_out} more that are not shown` : "") : ""}>
      <div class="search-field"><${Icon} name="search" /><input type="search" data-search placeholder="Filter by name" aria-label="Filter by name" value=${wanted}
        onInput=${(/** @type {any} */ e) => setWanted(e.target.value)} /></div><//>
    <${QueueTable} fill stats=${stats} views=${views.data?.queues} sla=${sla.data} trends=${trends.data?.done} isLoading=${!room} reload=${views.reload} breakers=${breakers.data} staff=${workers.data && staffOf(workers.data.workers)}
      empty=${wanted ? html`<${Empty} icon="search" title="No queue is called like that">“${wanted}” is in no name.<//>`
        : html`<${Empty} icon="queues" title="No queue yet" command=${`postroom message put emails '{"hello": "world"}'`}>A queue comes into being with its first message.<//>`} />`;
}

/** How many work on each queue, without those that were lost. @param {{queues: string[], lost: boolean}[]} workers */
function staffOf(workers) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const queue of workers.filter(({ lost }) => !lost).flatMap(({ queues }) => queues)) found[queue] = (found[queue] ?? 0) + 1;
  return found;
}

/**
 * @param {{stats: import("../lib/data.js").QueueStats[], views?: QueueView[], sla?: import("../lib/verdict.js").Sla[], fill?: boolean,
 *   isLoading?: boolean, empty?: any, reload?: () => void, staff?: Record<string, number>, trends?: Record<string, (number | null)[]>,
 *   breakers?: Record<string, import("../lib/verdict.js").BreakerView>}} props
 *   staff: how many work on each; trends: how many a second it had done, over the last hour
 */
export function QueueTable({ stats, views = [], sla = [], fill = false, isLoading = false, empty, reload = () => {}, staff, trends = {}, breakers }) {
  const view = new Map(views.map((each) => [each.queue, each]));
  const promise = new Map(sla.map((each) => [each.queue, each]));
  const mayPause = useCan("pause"), mayPurge = useCan("purge");
  const [inSight, setInSight] = useState(/** @type {string[]} */ ([]));
  const backlogs = useBacklogs(inSight, stats);
  const rows = stats.map((each) => ({ ...each, id: each.queue, finding: findingsOf(each, view.get(each.queue), promise.get(each.queue), guardOf(breakers, each.queue))[0] }));
  /** @param {any} row */
  const actions = (row) => [
    ...(mayPause ? [pausing(row.queue, row.paused, reload)] : []),
    ...(mayPurge ? [{ words: "Purge…", icon: "trash", danger: true, run: () => purge(row.queue, reload) }] : []),
  ];
  /** Only where all are shown: the worst ten in another order would be no list of the worst. @param {(row: any) => number | string} sort */
  const by = (sort) => (fill ? { sort } : {});
  const columns = [
    { id: "queue", ...by((row) => row.queue), title: "Queue", cell: (/** @type {any} */ row) => html`<${GroupedLink} queue=${row.queue} />` },
    { id: "verdict", title: "Verdict", cell: (/** @type {any} */ row) => html`<${VerdictBadge} finding=${row.finding} stats=${row} />` },
    { id: "ready", ...by((row) => row.ready), title: "Ready", align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => html`<${Ready} stats=${row} backlog=${backlogs.get(row.queue)} labels=${view.get(row.queue)?.policy.labels} />` },
    { id: "processing", ...by((row) => row.processing), title: "Processing", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => inFlight(row, view.get(row.queue)) },
    { id: "scheduled", ...by((row) => row.scheduled), title: "Scheduled", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => number(row.scheduled) },
    { id: "retrying", title: "Retrying", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => html`<${Retrying} stats=${row} backlog=${backlogs.get(row.queue)} />` },
    { id: "dead", ...by((row) => row.dead), title: "Dead", align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => number(row.dead, "bad-words") },
    { id: "pace", ...by((row) => pace(row.queue, "acked") ?? 0), title: "Done", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => html`<span class="paced"><${Trend} values=${trends[row.queue] ?? []} />${done(row.queue)}</span>` },
    ...(staff ? [{ id: "workers", ...by((row) => staff[row.queue] ?? 0), title: "Workers", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => number(staff[row.queue] ?? 0) }] : []),
    { id: "mix", title: "", label: "Shares", wide: true, cell: (/** @type {any} */ row) => html`<${Bar} parts=${parts(row)} />` },
    { id: "oldest", ...by((row) => row.oldest), title: "Oldest", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => (row.oldest ? span(row.oldest) : html`<span class="zero">—</span>`) },
    { id: "sla", ...by((row) => promise.get(row.queue)?.p95 ?? 0), title: "p95 wait", wide: true, align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => html`<${Promise95} sla=${promise.get(row.queue)} />` },
    ...(fill && (mayPause || mayPurge) ? [{ id: "actions", title: "", label: "Actions", width: "48px", cell: (/** @type {any} */ row) => html`<${Menu} label=${`Actions for ${row.queue}`} items=${actions(row)} />` }] : []),
  ];
  return html`<${Table} name="Queues" fill=${fill} columns=${columns} rows=${rows} isLoading=${isLoading} empty=${empty} inSight=${setInSight} open=${(/** @type {any} */ row) => go(at`/queues/${row.queue}`)} />`;
}

/** How many are ready, and how urgent they are. @param {{stats: import("../lib/data.js").QueueStats, backlog?: import("../lib/backlog.js").Backlog, labels?: Record<string, number>}} props */
const Ready = ({ stats, backlog, labels }) => html`<span class="levelled">${number(stats.ready)}${stats.ready && backlog?.levels.length ? html`<span class="wide-only"><${LevelBar} backlog=${backlog} labels=${labels} /></span>` : null}</span>`;

/** What failed and will be tried again, of what is scheduled. @param {{stats: import("../lib/data.js").QueueStats, backlog?: import("../lib/backlog.js").Backlog}} props */
function Retrying({ stats, backlog }) {
  const known = retryingOf(backlog, stats.scheduled);
  return html`<span class=${known && known !== "0" ? "" : "zero"} title=${known === undefined && backlog ? "None of those that are due first" : undefined}>${known ?? "—"}</span>`;
}

/** @param {string} queue */
function done(queue) {
  const found = pace(queue, "acked");
  return html`<span class=${found ? "" : "zero"}>${found == null ? "—" : rate(found)}</span>`;
}

/** @param {{values: (number | null)[]}} props */
function Trend({ values }) {
  const known = values.filter((value) => value != null), most = Math.max(0, ...known);
  return html`<${Sparkline} values=${known} tone="good" words=${known.length > 1 ? `last hour: at most ${rate(most)} done, ${rate(known.at(-1) ?? 0)} at its end` : ""} />`;
}

/** @param {number} n @param {string} [tone] */
const number = (n, tone = "") => html`<span class=${n ? tone : "zero"}>${short(n)}</span>`;

/** @param {any} row @param {QueueView | undefined} view */
const inFlight = (row, view) => html`<span class=${row.overdue ? "bad-words" : row.processing ? "" : "zero"}>${short(row.processing)}</span>${
  view?.policy.max_in_flight ? html`<span class="faint"> / ${short(view.policy.max_in_flight)}</span>` : null}`;

/** @param {any} row */
const parts = (row) => [
  { value: row.processing, tone: "good", words: `${short(row.processing)} processing` }, { value: row.ready, tone: "info", words: `${short(row.ready)} ready` },
  { value: row.scheduled, tone: "plain", words: `${short(row.scheduled)} scheduled` }, { value: row.dead, tone: "bad", words: `${short(row.dead)} dead` },
];

/** @param {{finding?: import("../lib/verdict.js").Finding, stats: import("../lib/data.js").QueueStats}} props */
export function VerdictBadge({ finding, stats }) {
  if (finding?.word === "Paused" && stats.paused_until) return html`<${Badge} tone=${finding.tone} dot title=${finding.cause}>Paused <${Countdown} deadline=${stats.paused_until} over="ends" label="Resumes by itself at " /><//>`;
  if (finding) return html`<${Badge} tone=${finding.tone} dot title=${finding.cause}>${finding.word}<//>`;
  if (stats.processing || (stats.ready && stats.oldest < 2_000)) return html`<${Badge} tone="good" dot>Flowing<//>`;
  return stats.ready ? html`<${Badge} tone="info" dot title="Nobody works on it at this moment">Waiting<//>` : html`<${Badge}>Idle<//>`;
}

/** @param {{sla?: import("../lib/verdict.js").Sla}} props */
export function Promise95({ sla }) {
  if (!sla || (sla.p95 == null && sla.target == null)) return html`<span class="zero">—</span>`;
  return html`<span class=${sla.met === false ? "bad-words" : ""} title=${sla.met == null ? "" : sla.met ? "The promise is kept" : "The promise is broken"}>${sla.p95 == null ? "—" : span(sla.p95)}</span>${
    sla.target == null ? null : html`<span class="faint"> / ${span(sla.target)}</span>`}`;
}

/** @param {string} queue @param {boolean} isPaused @param {() => void} reload */
export function pausing(queue, isPaused, reload) {
  const where = path`queues/${queue}`;
  const after = () => { reload(); lookAgain(); };
  if (isPaused) return { words: "Resume", icon: "play", run: () => void act(() => post(`${where}/resume`), { doing: `resume ${queue}`, done: `${queue} goes on.` }).then(after) };
  const run = async () => {
    const answer = await show({ title: `Pause ${queue}?`, body: PauseForm, props: { queue } });
    if (!answer) return;
    await act(() => post(`${where}/pause`, answer), {
      doing: `pause ${queue}`, done: (view) => (view.paused_until ? `${queue} is paused, and resumes by itself at ${brief(view.paused_until)}.` : `${queue} is paused.`),
      undo: () => post(`${where}/resume`).then(after),
    });
    after();
  };
  return { words: "Pause…", icon: "pause", run: () => void run() };
}

/** For how long, in words that fit on a button. @type {[string, string][]} */
const SPANS = [["", "Until resumed"], ["5m", "5 min"], ["15m", "15 min"], ["1h", "1 hour"], ["4h", "4 hours"]];

/** @param {{queue: string, close: (answer?: {reason: string, span: string | null}) => void}} props */
function PauseForm({ queue, close }) {
  const [reason, setReason] = useState("");
  const [span, setSpan] = useState("");
  /** @param {Event} event */
  const submit = (event) => { event.preventDefault(); close({ reason, span: span.trim() || null }); };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <p class="scope">Nobody claims from ${queue} ${span.trim() ? `for ${span.trim()}; then it resumes by itself` : "until somebody resumes it"}.</p>
    <div class="muted">Puts, work that has begun, and due times go on.</div>
    <div class="field"><span>For how long</span><${Tabs} name="For how long" value=${span} set=${setSpan} options=${SPANS.map(([value, words]) => ({ value, words }))} /></div>
    <div class="two"><label class="field"><span>Or for <em>30s, 20m, 2h</em></span><input value=${span} onInput=${(/** @type {any} */ e) => setSpan(e.target.value)} placeholder="until resumed" /></label>
      <label class="field"><span>Reason <em>others will read it</em></span><input autofocus value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} maxlength="200" /></label></div>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary">Pause</button></footer></form>`;
}

/** @param {string} queue @param {() => void} reload */
export async function purge(queue, reload) {
  const where = path`queues/${queue}/purge`;
  const dry = await act(() => post(`${where}?dry_run=true`), { doing: `count what ${queue} holds` });
  if (!dry) return;
  const answer = await confirm({
    title: `Purge ${queue}?`, scope: `${plural(dry.count, "message")} that wait${dry.count === 1 ? "s" : ""} in ${queue}, ready and scheduled, will be gone for good.`,
    detail: "What is being worked on, and dead letters, stay. There is no way back.", verb: `Purge ${plural(dry.count, "message")}`, type: queue, danger: true,
  });
  if (!answer) return;
  await act(() => post(where), { doing: `purge ${queue}`, done: (result) => `Purged ${plural(result.count, "message")} from ${queue}.` });
  reload();
  lookAgain();
}
