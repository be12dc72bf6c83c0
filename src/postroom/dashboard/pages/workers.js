/** Workers: who works, on what, since when; and who was lost. */
import { useLoaded } from "../lib/data.js";
import { plural } from "../lib/format.js";
import { Badge, Card, Empty, Failed, Head, QueueLink } from "../lib/parts.js";
import { Table } from "../lib/table.js";
import { When } from "../lib/time.js";
import { html } from "../lib/ui.js";

/** @typedef {{name: string, host: string, pid: number, door: string, role: string, queues: string[], concurrency: number, busy: number,
 *   in_flight: number, ids: string[], started: number, last_seen: number, lost: boolean, versions: Record<string, string>}} Worker */

export function Workers() {
  const { data, error, reload } = useLoaded("workers", { every: 5_000 });
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  /** @type {Worker[]} */
  const workers = data?.workers ?? [];
  const lost = workers.filter((worker) => worker.lost).length;
  const releases = new Set(workers.filter((worker) => !worker.lost).map((worker) => worker.versions.postroom));
  return html`<${Head} title="Workers" sub=${workers.length ? `${plural(workers.length - lost, "worker")} at work${lost ? `, ${lost} lost` : ""}` : undefined} />
    ${releases.size > 1 ? html`<p class="strip"><${Badge} tone="warn">mixed releases<//> <span class="muted">Workers of ${[...releases].sort().join(" and ")} run side by side.</span></p>` : null}
    <${Card} flush><${Table} name="Workers" rows=${workers} isLoading=${!data} keyOf=${(/** @type {Worker} */ worker) => worker.name} columns=${COLUMNS}
      empty=${html`<${Empty} icon="workers" title="Nobody works here" command="postroom worker --app MODULE">A worker shows itself every ten seconds. One that is silent for half a minute is lost,
        and stays here for five minutes with what it held.<//>`} /><//>`;
}

const COLUMNS = [
  { id: "name", title: "Worker", cell: (/** @type {any} */ worker) => html`<strong>${worker.name}</strong>${worker.role ? html` <span class="faint">${worker.role}</span>` : null}` },
  { id: "state", title: "State", cell: (/** @type {any} */ worker) => (worker.lost ? html`<${Badge} tone="bad" dot>lost<//>` : html`<${Badge} tone="good" dot>${worker.busy ? "busy" : "idle"}<//>`) },
  { id: "door", title: "Runs", wide: true, cell: (/** @type {any} */ worker) => html`${worker.door} <span class="faint">${Object.entries(worker.versions).map(([name, version]) => `${name} ${version}`).join(", ")}</span>` },
  { id: "queues", title: "Queues", wide: true, cell: (/** @type {any} */ worker) => worker.queues.map((/** @type {string} */ queue, /** @type {number} */ i) => html`${i ? ", " : ""}<${QueueLink} queue=${queue} />`) },
  { id: "busy", title: "Busy", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => `${worker.busy} / ${worker.concurrency}` },
  { id: "held", title: "Holds", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => worker.in_flight },
  { id: "started", title: "Started", wide: true, cell: (/** @type {any} */ worker) => html`<${When} at=${worker.started} />` },
  { id: "seen", title: "Seen", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ worker) => html`<${When} at=${worker.last_seen} />` },
];
