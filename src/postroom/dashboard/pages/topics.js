/** Topics: what was published for everybody who reads, the oldest that is kept first. */
import { BASE, get, path } from "../lib/api.js";
import { useLoaded } from "../lib/data.js";
import { show } from "../lib/dialog.js";
import { count, plural, span } from "../lib/format.js";
import { Json, jsonText } from "../lib/json.js";
import { Badge, Card, Empty, Failed } from "../lib/parts.js";
import { useQuery } from "../lib/router.js";
import { useRows } from "../lib/rows.js";
import { Table } from "../lib/table.js";
import { When } from "../lib/time.js";
import { html } from "../lib/ui.js";

/** Topics that are offered to choose from. */
const MOST = 1_000;

export function Topics() {
  const { data, error, reload } = useLoaded("topics", { every: 15_000, query: { limit: MOST } });
  const [name, setName] = useQuery("topic");
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  /** @type {string[]} */
  const topics = data.topics;
  if (!topics.length) return html`<${Card}><${Empty} icon="events" title="No topic yet" command=${`curl ${BASE}topics/orders -H 'content-type: application/json' -d '{"entries": [{"id": 7}]}'`}>A topic comes into being with what is first published to it. Everybody who reads it reads everything, each from a place of their own.<//><//>`;
  const chosen = topics.includes(name) ? name : topics[0];
  return html`<div class="row"><select class="narrow" aria-label="Topic" value=${chosen} onChange=${(/** @type {any} */ e) => setName(e.target.value)}>${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>
      <${Known} readers=${data.readers[chosen]} /></div>
    <p class="faint">Who reads a topic keeps its place itself. Workers of Celery tell theirs every ten seconds; readers that do not report, as a live page or a program of your own, are not counted. What waits for a service of events stands with its archive.</p>
    <${Entries} key=${chosen} topic=${chosen} />`;
}

/** Who is known to read it, and how far behind the slowest is. @param {{readers: {count: number, behind: number, slowest: string, missed: number, complete: boolean} | undefined}} props */
function Known({ readers }) {
  if (!readers) return html`<span role="status" aria-label="Subscribers" class="muted">No known subscriber</span>`;
  return html`<span role="status" aria-label="Subscribers"><strong>${plural(readers.count, "known subscriber")}</strong> <span class="muted">· ${readers.behind
    ? html`the slowest is <${Badge} tone="warn">${span(readers.behind)} behind<//> ${readers.slowest}` : "none is behind"}${readers.complete ? "" : ", of those that were looked at"}</span>${
    readers.missed ? html` <${Badge} tone="bad">missed ${count(readers.missed)}<//>` : null}</span>`;
}

/** @param {{topic: string}} props */
function Entries({ topic }) {
  const found = useRows(async (cursor, limit) => {
    const page = await get(`${path`topics/${topic}`}?after=${encodeURIComponent(cursor ?? "")}&limit=${limit}`);
    return { rows: page.entries, cursor: page.entries.length === limit ? page.cursor : null };
  }, { of: topic, every: 5_000 });
  if (found.error && !found.rows.length) return html`<${Failed} error=${found.error} retry=${found.reload} />`;
  return html`<${Table} name=${`Entries of ${topic}`} fill ...${found} columns=${COLUMNS} open=${(/** @type {any} */ entry) => show({ title: `Entry of ${topic}`, wide: true, body: Entry, props: { entry } })}
    empty=${html`<${Card}><${Empty} icon="events" title="Nothing is kept of it">What was published is kept for a while, and then let go of.<//><//>`} />`;
}

/** @type {import("../lib/table.js").Column[]} */
const COLUMNS = [
  { id: "at", title: "When", width: "130px", cell: (row) => html`<${When} at=${row.at} />` },
  { id: "data", title: "Entry", grows: true, cell: (row) => html`<code class="muted">${jsonText(row.data, 0).slice(0, 300)}</code>` },
];

/** @param {{entry: any}} props */
const Entry = ({ entry }) => html`<div class="dialog-body"><p class="muted"><${When} at=${entry.at} /> · <code>${entry.id}</code></p><${Json} value=${entry.data} /></div>`;
