/** Processing: what is being worked on, by whom, and how long each still has, by the server's clock. */
import { path, post } from "../lib/api.js";
import { Countdown, everySecond, now } from "../lib/clock.js";
import { lookAgain, standing, total, useLoaded } from "../lib/data.js";
import { confirm, show } from "../lib/dialog.js";
import { messagesOf } from "../lib/everywhere.js";
import { count, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { listen } from "../lib/live.js";
import { Badge, Empty, Failed, Head, Menu, MessageLink, QueueLink, Tabs } from "../lib/parts.js";
import { at, go, useQuery } from "../lib/router.js";
import { useRows } from "../lib/rows.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Table } from "../lib/table.js";
import { Elapsed, When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { Lanes } from "./processing/lanes.js";

/** So many sweeps may be missed before it is said that nobody sweeps. */
const MISSED = 3;
/** What an event of its queue makes of a message that somebody had. @type {Record<string, string>} */
const BECAME = { requeue: "Reclaimed", move_to_dlq: "Dead", cancel: "Cancelled" };
/** What became of how many messages is remembered. */
const MOST = 1_000;

/** @param {any} row */
const open = (row) => go(at`/queues/${row.queue}/messages/${row.id}`);

export function Processing() {
  const [queue, setQueue] = useQuery("queue");
  const [text, setText] = useQuery("q");
  const [view, setView] = useQuery("view", "table");
  const room = useStore(standing);
  const outcomes = useOutcomes();
  const found = useRows(messagesOf("processing", queue), {
    of: queue, every: 2_000, when: (event) => event.name === "requeue" || event.name === "move_to_dlq",
  });
  const rows = useMemo(() => found.rows.filter(matcher(text)).sort((a, b) => (a.deadline ?? Infinity) - (b.deadline ?? Infinity)), [found.rows, text]);
  const mayMove = useCan("move");
  const views = useLoaded("queues", { every: 30_000 });
  const most = new Map((views.data?.queues ?? []).map((/** @type {any} */ view) => [view.queue, view.policy.max_attempts]));
  const names = (room?.queues ?? []).filter((each) => each.processing).map((each) => each.queue);
  return html`<${Head} title="Processing" sub="Whoever does not finish, renew or answer in time loses the message: it goes to somebody else.">
      <${Tabs} name="How to look" value=${view} set=${setView} options=${[{ value: "table", words: "Table" }, { value: "lanes", words: "Lanes" }]} />
      <select class="narrow" aria-label="Queue" value=${queue} onChange=${(/** @type {any} */ e) => setQueue(e.target.value)}>
        <option value="">All queues</option>${[...new Set([...names, ...(queue ? [queue] : [])])].sort().map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>
    <//>
    <${Strip} />
    <div class="filter"><div class="search-field"><${Icon} name="search" /><input type="search" data-search aria-label="Filter what is processing" spellcheck=${false}
      placeholder="overdue:yes worker:web-1 left<10s charge_card" value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} /></div></div>
    ${found.error && !rows.length ? html`<${Failed} error=${found.error} retry=${found.reload} />` : view === "lanes" ? html`<${Lanes} rows=${rows} outcomes=${outcomes} />` : html`<${Table} name="Processing" fill open=${open}
      columns=${columns(mayMove, outcomes, found.reload, most)} ...${found} rows=${rows} keyOf=${(/** @type {any} */ row) => `${row.queue} ${row.id}`}
      empty=${html`<${Empty} icon="processing" title=${text ? "Nothing is like that" : "Nobody is working"} command=${text ? undefined : "postroom worker"}>${text
        ? "The filter looks at what is loaded." : "A message is here while a worker has it, with the time it still has."}<//>`} />`}`;
}

/** The overdue, who sweeps, and whether anybody does. */
function Strip() {
  const room = useStore(standing);
  const isMissing = useMissing(room);
  if (!room) return null;
  const overdue = total(room, "overdue");
  if (isMissing) {
    return html`<p class="strip bad" role="alert"><${Icon} name="alert" /><strong>No keeper is running.</strong> Overdue messages of queues that nobody consumes stay where they are:
      start <code>postroom keeper run</code>, or a server that keeps.</p>`;
  }
  return html`<p class="strip"><strong role="status" class=${overdue ? "bad" : ""}>${overdue ? `${count(overdue)} overdue` : "Nothing is overdue"}</strong>
    <span class="muted">· ${count(total(room, "processing"))} processing</span><${Sweep} room=${room} /></p>`;
}

/** When what is overdue is taken back at the latest, and by whom; it is counted down while there is something to take back. @param {{room: import("../lib/data.js").Standing}} props */
function Sweep({ room }) {
  if (!room.keeper) return null;
  const every = `the keeper sweeps every ${span(room.sweep_interval)}`;
  const who = room.keeper_name ? html`<span class="muted">· keeper <b>${room.keeper_name}</b></span>` : null;
  if (room.next_sweep == null || !total(room, "processing")) return html`<span class="muted">· ${every}</span>${who}`;
  return html`<span class="muted" title=${`${every} or sooner, and whoever consumes a queue looks after it more closely`}>· next sweep <${Until} at=${room.next_sweep} /></span>${who}`;
}

/** How long until then, in words that do not shout: a sweep is nothing to be afraid of. @param {{at: number}} props */
function Until({ at }) {
  const element = useRef(/** @type {HTMLTimeElement | null} */ (null));
  useEffect(() => {
    /** @param {number} time */
    const show = (time) => { if (element.current) element.current.textContent = at - time < 1_000 ? "now" : `in ${Math.ceil((at - time) / 1_000)} s`; };
    show(now());
    return everySecond(show);
  }, [at]);
  return html`<time ref=${element} dateTime=${new Date(at).toISOString()}></time>`;
}

/** Whether there has been no keeper for longer than a few sweeps. @param {import("../lib/data.js").Standing | null} room */
function useMissing(room) {
  const [isMissing, setMissing] = useState(false);
  const isAway = room !== null && room.ok && !room.keeper, patience = MISSED * (room?.sweep_interval ?? 0);
  useEffect(() => {
    setMissing(false);
    const timer = isAway ? setTimeout(() => setMissing(true), patience) : undefined;
    return () => clearTimeout(timer);
  }, [isAway, patience]);
  return isAway && isMissing;
}

/** What became of messages that were taken back, as events tell. @returns {Map<string, string>} */
function useOutcomes() {
  const [known] = useState(() => new Map());
  useEffect(() => listen(({ name, data }) => {
    const outcome = name === "lifecycle" && BECAME[data.event];
    if (!outcome) return;
    for (const id of data.ids) known.set(`${data.queue} ${id}`, outcome);
    for (const old of [...known.keys()].slice(0, Math.max(0, known.size - MOST))) known.delete(old);
  }), []);
  return known;
}

/** @param {boolean} mayMove @param {Map<string, string>} outcomes @param {() => void} reload @param {Map<string, number>} most attempts, by queue */
const columns = (mayMove, outcomes, reload, most) => [
  { id: "id", title: "Message", cell: (/** @type {any} */ row) => html`<${MessageLink} queue=${row.queue} id=${row.id} />` },
  { id: "task", title: "Kind", cell: (/** @type {any} */ row) => row.task_name || row.kind || "—" },
  { id: "queue", title: "Queue", wide: true, cell: (/** @type {any} */ row) => html`<${QueueLink} queue=${row.queue} />` },
  { id: "priority", title: "Priority", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => row.priority },
  { id: "attempt", title: "Attempt", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => html`${row.attempt + 1}<span class="faint"> / ${row.max_attempts ?? most.get(row.queue) ?? "…"}</span>` },
  { id: "worker", title: "Worker", wide: true, cell: (/** @type {any} */ row) => row.consumer || "—" },
  { id: "started", title: "Started", wide: true, cell: (/** @type {any} */ row) => html`<${When} at=${row.started_at} />` },
  { id: "elapsed", title: "Elapsed", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => (row.started_at == null || row.gone ? html`<span class="faint">—</span>` : html`<${Elapsed} since=${row.started_at} />`) },
  { id: "left", title: "Time left", cell: (/** @type {any} */ row) => html`<${Left} row=${row} outcome=${outcomes.get(`${row.queue} ${row.id}`)} />` },
  ...(mayMove ? [{ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => (row.gone ? null : html`<${Actions} row=${row} reload=${reload} outcomes=${outcomes} />`) }] : []),
];

/** @param {{row: any, outcome: string | undefined}} props */
function Left({ row, outcome }) {
  if (row.gone) return html`<${Badge} tone=${outcome === "Dead" ? "bad" : outcome ? "warn" : "good"}>${outcome ?? "Done"}<//>`;
  if (row.started_at == null) return html`<span class="faint" title="Claimed, not begun">—</span>`;
  if (row.deadline == null) return html`<span class="faint">…</span>`;
  return html`<${Countdown} deadline=${row.deadline} from=${row.started_at} label="Until " />`;
}

/** @param {{row: any, reload: () => void, outcomes: Map<string, string>}} props */
function Actions({ row, reload, outcomes }) {
  const where = path`queues/${row.queue}/messages/${row.id}`;
  /** @param {string} verb @param {any} body @param {string} doing @param {string} done @param {{reason?: string, became?: string}} [more] */
  const run = async (verb, body, doing, done, { reason, became } = {}) => {
    const did = await act(() => post(`${where}/${verb}`, { ...body, deliveries: row.deliveries }, reason), { doing, done });
    if (did !== undefined && became) outcomes.set(`${row.queue} ${row.id}`, became);
    reload();
    lookAgain();
  };
  const bury = async () => {
    const asked = await confirm({ title: "Give it up", scope: "This one message is taken from its worker and becomes a dead letter.", detail: "The worker is told that it is lost; what it has done of it is not undone.", verb: "Give it up", danger: true, reason: true });
    if (asked) await run("bury", { reason: asked.reason }, "give it up", "It is a dead letter now.", { became: "Dead" });
  };
  const cancel = async () => {
    const asked = await confirm({ title: "Cancel it?", scope: "This one message is taken from its worker and is gone for good, as one that waits would be.",
      detail: "Work that has begun is not interrupted: it goes on to its end, and its worker is told then that the message is gone.", verb: "Cancel the message", leave: "Leave it", danger: true, reason: true });
    if (asked) await run("cancel", undefined, "cancel it", "Cancelled: whoever works on it is told that it is gone.", { reason: asked.reason, became: "Cancelled" });
  };
  return html`<${Menu} label=${`Actions for ${row.id}`} items=${[
    { words: "One more minute", icon: "clock", run: () => run("extend", { span: 60 }, "give it more time", "It has another minute.") },
    { words: "More time…", icon: "clock", run: () => show({ title: "More time", body: Extend }).then((given) => given && run("extend", { span: given }, "give it more time", `It has another ${given}.`)) },
    { words: "Release now", icon: "replay", run: () => run("release", undefined, "release it", "Released: whoever worked on it is told that it is lost.", { became: "Released" }) },
    { words: "Cancel…", icon: "close", danger: true, run: () => void cancel() },
    { words: "Give it up…", icon: "trash", danger: true, run: () => void bury() },
  ]} />`;
}

/** @param {{close: (span?: string) => void}} props */
function Extend({ close }) {
  const [given, setGiven] = useState("15m");
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); close(given.trim()); }}>
    <label class="field"><span>For how long <em>30s, 15m, 2h</em></span><input autofocus value=${given} onInput=${(/** @type {any} */ e) => setGiven(e.target.value)} /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!given.trim()}>Give more time</button></footer></form>`;
}

const UNITS = /** @type {Record<string, number>} */ ({ s: 1_000, m: 60_000, h: 3_600_000 });

/** @param {string} text @returns {(row: any) => boolean} `overdue:yes worker:x left<10s`, and words that are looked for */
function matcher(text) {
  const checks = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, less, unit] = /^left<(\d+)([smh])$/.exec(word) ?? [];
    if (less) return (/** @type {any} */ row) => row.deadline != null && row.deadline - now() < Number(less) * UNITS[unit];
    if (word === "overdue:yes" || word === "overdue:true") return (/** @type {any} */ row) => row.deadline != null && row.deadline <= now();
    if (word.startsWith("worker:")) return (/** @type {any} */ row) => row.consumer.toLowerCase().includes(word.slice(7));
    if (word.startsWith("queue:")) return (/** @type {any} */ row) => row.queue.toLowerCase() === word.slice(6);
    return (/** @type {any} */ row) => `${row.id} ${row.kind} ${row.task_name} ${row.queue} ${row.consumer}`.toLowerCase().includes(word);
  });
  return (row) => checks.every((check) => check(row));
}
