/** The messages of one queue, a state or a part of one at a time. */
import { get, path } from "../../lib/api.js";
import { Countdown } from "../../lib/clock.js";
import { count, plural, short } from "../../lib/format.js";
import { jsonText } from "../../lib/json.js";
import { Badge, Card, Empty, Failed, MessageLink } from "../../lib/parts.js";
import { at, go } from "../../lib/router.js";
import { useRows } from "../../lib/rows.js";
import { Table } from "../../lib/table.js";
import { When } from "../../lib/time.js";
import { html } from "../../lib/ui.js";

/**
 * @typedef {import("../../lib/backlog.js").Backlog} Backlog
 * @typedef {import("../../lib/table.js").Column} Column
 * @typedef {{words: string, state: string, icon: string, empty: string, columns: Column[], tells?: Column, only?: (row: any) => boolean}} Tab
 *   tells: what is said of each, unless it is its body; only: which of that state it shows
 */

/** @type {Column} */
const DIED = { id: "died", title: "Died", align: "end", cell: (row) => html`<${When} at=${row.failed_at} />` };
/** @type {Column} */
const DUE = { id: "due", title: "Due in", align: "end", cell: (row) => html`<${Countdown} deadline=${row.due} over="now" label="due " />` };
/** @type {Column} */
const ERROR = { id: "error", title: "Error", grows: true, cell: (row) => html`<span title=${lastError(row)}>${lastError(row) || "—"}</span>` };

/** @type {Record<string, Tab>} */
const TABS = {
  ready: { words: "Ready", state: "ready", icon: "queues", empty: "What may be claimed now would stand here, in the order in which it will be. A worker that keeps up leaves nothing.",
    columns: [{ id: "put", title: "Put", align: "end", cell: (row) => html`<${When} at=${row.put_at} />` }] },
  processing: { words: "Processing", state: "processing", icon: "processing", empty: "What a worker holds right now would stand here, with the time it has left.", columns: [
    { id: "consumer", title: "Worker", wide: true, cell: (row) => row.consumer || "—" },
    { id: "left", title: "Time left", cell: (row) => html`<${Countdown} deadline=${row.deadline} from=${row.started_at} label="until " />` }] },
  scheduled: { words: "Scheduled", state: "scheduled", icon: "scheduled", empty: "What is delayed, or waits for its next attempt, would stand here, by its due time.", columns: [
    { id: "why", title: "Why", wide: true, cell: (row) => (row.attempt ? html`<${Badge} tone="warn">retry ${row.attempt}<//>` : html`<${Badge}>delay<//>`) }, DUE] },
  retrying: { words: "Retrying", state: "scheduled", icon: "replay", empty: "What failed and will be tried again would stand here, with what went wrong and when its next attempt is due.",
    only: (row) => row.attempt > 0, tells: ERROR, columns: [DUE] },
  dead: { words: "Dead", state: "dead", icon: "dead", empty: "What failed too often is kept here, until somebody replays or discards it.", tells: ERROR, columns: [DIED] },
  done: { words: "Done", state: "done", icon: "check", empty: "What has succeeded would stand here for as long as keep_done says.", columns: [
    { id: "attempts", title: "Failed before", wide: true, align: "end", cell: (row) => row.attempts.length || "—" }] },
};

/** @param {any} row */
const lastError = (row) => row.last_error ?? row.attempts.at(-1)?.error ?? "";

/**
 * The tabs of a queue; what is done is kept only where its policy says so.
 * @param {import("../../lib/data.js").QueueStats} stats @param {Record<string, any>} policy @param {string | undefined} retrying how many, as far as that is known
 */
export const tabsOf = (stats, policy, retrying) => Object.entries(TABS).filter(([name]) => name !== "done" || isKept(policy.keep_done))
  .map(([value, { words }]) => ({ value, words, count: value in stats ? short(stats[/** @type {"ready"} */ (value)]) : value === "retrying" ? retrying : undefined }));

/** @param {any} span */
const isKept = (span) => Boolean(span) && span !== "0s";

/** Pages that are looked through for one that is shown: what is looked for may be rare. */
const LOOKS = 10;

/** @param {string} queue @param {Tab} tab @returns {Parameters<typeof useRows>[0]} */
const pagesOf = (queue, { state, only }) => async (cursor, limit) => {
  const rows = [];
  let from = cursor;
  for (let look = 0; look < LOOKS; look += 1) {
    const page = await get(path`queues/${queue}/messages`, { state, cursor: from, limit });
    rows.push(...(only ? page.messages.filter(only) : page.messages));
    from = page.cursor;
    if (!only || !from || rows.length >= limit) break;
  }
  return { rows, cursor: from };
};

/** @param {{queue: string, tab: string, backlog?: Backlog, labels: Record<string, number>}} props */
export function Messages({ queue, tab: name, backlog, labels }) {
  const tab = TABS[name] ?? TABS.ready;
  const list = useRows(pagesOf(queue, tab), { of: `${queue} ${name}`, when: (event) => event.data?.queue === queue });
  if (list.error && !list.rows.length) return html`<${Card}><${Failed} error=${list.error} retry=${list.reload} /><//>`;
  return html`${name === "ready" ? html`<${Priorities} backlog=${backlog} labels=${labels} />` : null}
    <${Table} fill name=${`${name} messages of ${queue}`} ...${list} columns=${columnsOf(tab)}
      open=${(/** @type {any} */ row) => go(at`/queues/${queue}/messages/${row.id}`)}
      empty=${html`<${Card}><${Empty} icon=${tab.icon} title=${`Nothing is ${name}`}>${tab.empty}<//><//>`} />`;
}

/** @type {Column} */
const BODY = { id: "body", title: "Body", wide: true, grows: true, cell: (row) => html`<code class="muted">${jsonText(row.body ?? row.body_base64, 0).slice(0, 120)}</code>` };

/** @param {Tab} tab @returns {Column[]} */
const columnsOf = ({ tells = BODY, columns }) => [
  { id: "id", title: "Message", width: "150px", cell: (row) => html`<${MessageLink} queue=${row.queue} id=${row.id} />` },
  { id: "kind", title: "Kind", cell: (row) => row.task_name || row.kind || html`<span class="faint">—</span>` },
  tells,
  { id: "priority", title: "Priority", wide: true, align: "end", cell: (row) => row.priority },
  { id: "attempt", title: "Attempt", wide: true, align: "end", cell: (row) => (row.state === "dead" ? row.attempt : row.attempt + 1) },
  ...columns,
];

/**
 * How urgent what is ready is, the most urgent first. With one level there is nothing to compare.
 * @param {{backlog?: Backlog, labels: Record<string, number>}} props
 */
function Priorities({ backlog, labels }) {
  if (!backlog || backlog.levels.length < 2) return null;
  const most = Math.max(...backlog.levels.map((level) => level.count));
  const names = new Map(Object.entries(labels).map(([name, level]) => [level, name]));
  return html`<section class="card by-priority" aria-label="By priority"><div><h2>By priority</h2><p class="faint">${backlog.levels_whole ? "all that is ready" : "at least"}</p></div>
    <dl class="levels">${backlog.levels.map(({ priority: level, count: n }) => html`<div key=${level}><dt>${names.get(level) ?? "level"} <span class="faint">${level}</span></dt>
      <dd><i style=${{ width: `${Math.max(0.5, (100 * n) / most)}%` }}></i><span title=${plural(n, "message")}>${count(n)}</span></dd></div>`)}</dl></section>`;
}
