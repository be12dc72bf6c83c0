/** Workers: who works, on what at this moment, since when; who was lost; and what they are told. */
import { path, post } from "../lib/api.js";
import { Countdown } from "../lib/clock.js";
import { useLoaded } from "../lib/data.js";
import { confirm } from "../lib/dialog.js";
import { messagesOf } from "../lib/everywhere.js";
import { plural, size } from "../lib/format.js";
import { Badge, Card, Empty, Failed, Head, QueueLink } from "../lib/parts.js";
import { at, href } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { Table } from "../lib/table.js";
import { Elapsed, When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html } from "../lib/ui.js";

/** @typedef {{id: string, name: string, state: string, told: string, hears: boolean, memory: number, last_error: string, host: string, pid: number, door: string, role: string, queues: string[], concurrency: number, busy: number,
 *   in_flight: number, ids: string[], started: number, last_seen: number, lost: boolean, versions: Record<string, string>}} Worker */

/** Messages that are looked at for the lanes, of a lane are drawn, and free places of it; more are counted. */
const LOOKED = 500, PLACES = 12, FEW = 4;

export function Workers() {
  const { data, error, reload } = useLoaded("workers", { every: 5_000, when: (event) => event.name === "audit" });
  const may = useCan("worker");
  const held = useLoaded("processing", { every: 2_000, load: () => messagesOf("processing", "")(null, LOOKED).then(({ rows }) => rows) });
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  /** @type {Worker[]} */
  const workers = data?.workers ?? [];
  const lost = workers.filter((worker) => worker.lost).length;
  const releases = new Set(workers.filter((worker) => !worker.lost).map((worker) => worker.versions.postroom));
  return html`<${Head} title="Workers" sub=${workers.length ? `${plural(workers.length - lost, "worker")} at work${lost ? `, ${lost} lost` : ""}` : undefined} />
    ${releases.size > 1 ? html`<p class="strip"><${Badge} tone="warn">mixed releases<//> <span class="muted">Workers of ${[...releases].sort().join(" and ")} run side by side.</span></p>` : null}
    ${workers.length && held.data ? html`<${Card} title="At this moment" flush actions=${html`every place is one message`}>
      <ul class="lanes">${workers.map((worker) => html`<${Lane} key=${worker.id} worker=${worker} rows=${runs(worker, held.data)} />`)}</ul><//>` : null}
    <${Card} flush><${Table} name="Workers" rows=${workers} isLoading=${!data} keyOf=${(/** @type {Worker} */ worker) => worker.id} columns=${may ? [...COLUMNS, acts(reload)] : COLUMNS}
      empty=${html`<${Empty} icon="workers" title="Nobody works here" command="postroom worker --app MODULE">A worker shows itself every ten seconds. One that is silent for half a minute is lost,
        and stays here for fifteen minutes with what it held.<//>`} /><//>`;
}

/** What a worker has begun, the longest first: by its name, or by the ids that it told last. @param {Worker} worker @param {any[]} rows */
const runs = (worker, rows) => rows.filter((row) => row.started_at && (row.consumer === worker.name || worker.ids.includes(row.id)))
  .sort((a, b) => a.started_at - b.started_at);

/** One worker: its places, of which each holds a message or is free. @param {{worker: Worker, rows: any[]}} props */
function Lane({ worker, rows }) {
  const free = worker.lost ? 0 : Math.max(0, worker.concurrency - rows.length);
  const more = Math.max(0, rows.length - PLACES);
  return html`<li class=${`lane${worker.lost ? " lost" : ""}`}><div class="lane-name"><b title=${worker.name}>${worker.name}</b>
      <span class="faint">${worker.lost ? "lost" : `${rows.length} of ${worker.concurrency} busy`}</span>
      ${worker.last_error ? html`<span class="lane-error" title=${worker.last_error}>${worker.last_error}</span>` : null}</div>
    <ul class="places" aria-label=${`Places of ${worker.name}`}>${rows.slice(0, PLACES).map((row) => html`<li key=${`${row.queue} ${row.id}`}><a class="place" href=${href(at`/queues/${row.queue}/messages/${row.id}`)} title=${`${row.queue}, ${row.id}`}>
        <b>${row.task_name || row.kind || row.queue}</b><span class="place-foot"><${Elapsed} since=${row.started_at} />${row.deadline == null ? null : html`<${Countdown} deadline=${row.deadline} from=${row.started_at} label="until " />`}</span></a></li>`)}
      ${free > FEW ? html`<li class="place free">${free} free</li>` : Array.from({ length: free }, (_, i) => html`<li key=${`free ${i}`} class="place free">free</li>`)}
      ${more ? html`<li class="faint places-more">and ${more} more</li>` : null}</ul></li>`;
}

const COLUMNS = [
  { id: "name", title: "Worker", sort: (/** @type {any} */ worker) => worker.name, cell: (/** @type {any} */ worker) => html`<strong>${worker.name}</strong>${worker.role ? html` <span class="faint">${worker.role}</span>` : null}` },
  { id: "state", title: "State", cell: (/** @type {Worker} */ worker) => html`<${Standing} worker=${worker} />` },
  { id: "door", title: "Runs", wide: true, cell: (/** @type {any} */ worker) => html`${worker.door} <span class="faint">${Object.entries(worker.versions).map(([name, version]) => `${name} ${version}`).join(", ")}</span>` },
  { id: "queues", title: "Queues", wide: true, grows: true, cell: (/** @type {any} */ worker) => worker.queues.map((/** @type {string} */ queue, /** @type {number} */ i) => html`${i ? ", " : ""}<${QueueLink} queue=${queue} />`) },
  { id: "busy", title: "Busy", sort: (/** @type {any} */ worker) => worker.busy, wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => `${worker.busy} / ${worker.concurrency}` },
  { id: "held", title: "Holds", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => worker.in_flight },
  { id: "memory", title: "Memory", sort: (/** @type {any} */ worker) => worker.memory, wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => (worker.memory ? size(worker.memory) : "—") },
  { id: "started", title: "Started", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => html`<${When} at=${worker.started} />` },
  { id: "seen", title: "Seen", sort: (/** @type {any} */ worker) => worker.last_seen, wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => html`<${When} at=${worker.last_seen} />` },
];

/** @param {{worker: Worker}} props */
function Standing({ worker }) {
  const told = worker.told && !worker.lost ? html` <${Badge} tone="info" title="It hears that with its next sign of life, within ten seconds.">told to ${worker.told === "quiet" ? "be quiet" : worker.told}<//>` : null;
  if (worker.lost) return html`<${Badge} tone="bad" dot>lost<//>`;
  if (worker.state !== "working") return html`<${Badge} tone="warn" dot>${worker.state}<//>${told}`;
  return html`<${Badge} tone="good" dot>${worker.busy ? "busy" : "idle"}<//>${told}`;
}

/** What this person can tell a worker. @param {() => void} reload */
const acts = (reload) => ({ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {Worker} */ worker) => {
  if (worker.lost || !worker.hears || worker.state === "stopping" || worker.told === "stop") return null;
  const isQuiet = (worker.told || worker.state) === "quiet";
  return html`<span class="row-actions">${isQuiet
    ? html`<button class="button small" aria-label=${`Resume ${worker.name}`} onClick=${() => resume(worker, reload)}>Resume</button>`
    : html`<button class="button small" aria-label=${`Quiet ${worker.name}`} title="It claims no more, and finishes what it began" onClick=${() => quiet(worker, reload)}>Quiet</button>`}
    <button class="button small quiet-danger" aria-label=${`Stop ${worker.name}`} onClick=${() => stop(worker, reload)}>Stop…</button></span>`;
} });

/** @param {Worker} worker @param {string} word @param {any} [body] */
const tell = (worker, word, body) => post(path`workers/${worker.id}` + `/${word}`, body);

/** @param {Worker} worker @param {() => void} reload */
const resume = (worker, reload) => act(() => tell(worker, "resume"), { doing: `tell ${worker.name} to resume`, done: `${worker.name} claims again within ten seconds.` }).then(reload);

/** @param {Worker} worker @param {() => void} reload */
const quiet = (worker, reload) => act(() => tell(worker, "quiet"), {
  doing: `tell ${worker.name} to be quiet`, done: `${worker.name} claims no more from within ten seconds on.`, undo: () => tell(worker, "resume").finally(reload),
}).then(reload);

/** @param {Worker} worker @param {() => void} reload */
async function stop(worker, reload) {
  const asked = await confirm({
    title: `Stop ${worker.name}`, verb: "Stop it", danger: true, reason: true,
    scope: `This one worker, process ${worker.pid} on ${worker.host}, claims no more, finishes what it began and ends.`,
    detail: "It hears that within ten seconds. Nothing here starts it again: whoever runs it may, such as systemd or Kubernetes.",
  });
  if (!asked) return;
  await act(() => tell(worker, "stop", { reason: asked.reason }), { doing: `tell ${worker.name} to stop`, done: `${worker.name} ends when its work is done.` });
  reload();
}
