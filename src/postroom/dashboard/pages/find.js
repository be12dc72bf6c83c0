/** Finding messages in whatever queue they are: one by its id, or those of a kind. */
import { get, path } from "../lib/api.js";
import { standing, useLoaded } from "../lib/data.js";
import { Icon } from "../lib/icons.js";
import { Card, Empty, Failed, Head, MessageLink, QueueLink, StateBadge } from "../lib/parts.js";
import { at, go, href, useQuery } from "../lib/router.js";
import { Searched } from "../lib/searched.js";
import { useStore } from "../lib/store.js";
import { Table } from "../lib/table.js";
import { When } from "../lib/time.js";
import { html, useEffect, useState } from "../lib/ui.js";

const STATES = ["ready", "scheduled", "processing", "dead", "done"];
/** What looks like an id is one. */
const ID = /^[0-9a-f]{32}$/;

export function Find() {
  const [id] = useQuery("id"), [kind] = useQuery("kind"), [queue] = useQuery("queue"), [state] = useQuery("state");
  return html`<${Head} title="Find messages" sub="By a part of their kind, the name of a task, or one by its id; in every queue." />
    <${Form} wanted=${id || kind} queue=${queue} state=${state} />
    ${id ? html`<${ById} id=${id} />` : kind ? html`<${OfKind} key=${`${kind} ${queue} ${state}`} kind=${kind} queue=${queue} state=${state} />`
      : html`<${Card}><${Empty} icon="search" title="What are you looking for?" command="postroom message find send_welcome">Dead letters are also found by their error, payload and age: on their own page.<//><//>`}`;
}

/** @param {{wanted: string, queue: string, state: string}} props */
function Form({ wanted, queue, state }) {
  const [typed, setTyped] = useState(wanted);
  useEffect(() => setTyped(wanted), [wanted]);
  const room = useStore(standing);
  /** @param {Record<string, string>} change */
  const search = (change) => {
    const next = { text: typed.trim(), queue, state, ...change };
    go("/find", ID.test(next.text) ? { id: next.text } : { kind: next.text, queue: next.queue, state: next.state });
  };
  return html`<form class="filter" role="search" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); search({}); }}>
    <div class="search-field"><${Icon} name="search" /><input type="search" data-search aria-label="Kind or id" placeholder="send_welcome" spellcheck=${false}
      value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></div>
    <select class="narrow" aria-label="Queue" value=${queue} onChange=${(/** @type {any} */ e) => search({ queue: e.target.value })}>
      <option value="">All queues</option>${(room?.queues ?? []).map((each) => html`<option key=${each.queue} value=${each.queue}>${each.queue}</option>`)}</select>
    <select class="narrow" aria-label="State" value=${state} onChange=${(/** @type {any} */ e) => search({ state: e.target.value })}>
      <option value="">Every state</option>${STATES.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>
    <button class="button" type="submit">Find</button></form>`;
}

const COLUMNS = [
  { id: "id", title: "Message", cell: (/** @type {any} */ row) => html`<${MessageLink} queue=${row.queue} id=${row.id} />` },
  { id: "kind", title: "Kind", grows: true, cell: (/** @type {any} */ row) => html`<span title=${row.kind}>${row.kind || "—"}</span>` },
  { id: "queue", title: "Queue", cell: (/** @type {any} */ row) => html`<${QueueLink} queue=${row.queue} />` },
  { id: "state", title: "State", cell: (/** @type {any} */ row) => html`<${StateBadge} state=${row.state} />` },
  { id: "put", title: "Put", wide: true, align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => html`<${When} at=${row.put_at} />` },
];
/** @param {any} row */
const keyOf = (row) => `${row.queue} ${row.id} ${row.state}`;
/** @param {any} row */
const open = (row) => go(at`/queues/${row.queue}/messages/${row.id}`);

/** @param {{kind: string, queue: string, state: string}} props */
function OfKind({ kind, queue, state }) {
  const [found, setFound] = useState(/** @type {{rows: any[], scanned: number, cursor: string | null, isBusy: boolean, error: Error | null}} */ ({ rows: [], scanned: 0, cursor: null, isBusy: true, error: null }));
  /** Search on from where the last search stopped. */
  const on = async () => {
    setFound((before) => ({ ...before, isBusy: true, error: null }));
    try {
      const more = await get("messages", { kind, queue, state, cursor: found.cursor });
      setFound((before) => ({ rows: [...before.rows, ...more.messages], scanned: before.scanned + more.scanned, cursor: more.cursor, isBusy: false, error: null }));
    } catch (error) {
      setFound((before) => ({ ...before, isBusy: false, error: /** @type {Error} */ (error) }));
    }
  };
  useEffect(() => void on(), []);
  if (found.error) return html`<${Card}><${Failed} error=${found.error} retry=${on} /><//>`;
  return html`<${Searched} found=${found.rows.length} scanned=${found.scanned} of="message" isBusy=${found.isBusy} isOver=${!found.cursor} on=${on} />
    <${Table} name="Messages of this kind" fill rows=${found.rows} isLoading=${found.isBusy} columns=${COLUMNS} keyOf=${keyOf} open=${open}
      empty=${html`<${Card}><${Empty} icon="search" title=${found.cursor ? "None so far" : "No message is of such a kind"}>${found.cursor
        ? "A search looks at 100,000 messages or for 5 seconds at a time: search on, or choose a queue or a state."
        : "What succeeded is not kept, unless its queue says keep_done."}<//><//>`} />`;
}

/** @param {{id: string}} props */
function ById({ id }) {
  const { data, error, reload } = useLoaded(path`messages/${id}`, { every: 30_000 });
  const found = data?.messages ?? [];
  useEffect(() => {
    // In one place: then that is where to go, and back leads to where the search began.
    if (found.length === 1) location.replace(href(at`/queues/${found[0].queue}/messages/${found[0].id}`));
  }, [data]);
  if (error) return html`<${Card}><${Failed} error=${error} retry=${reload} /><//>`;
  return html`<${Table} name="Messages with this id" rows=${found} isLoading=${!data} keyOf=${keyOf} columns=${COLUMNS} open=${open}
    empty=${html`<${Card}><${Empty} icon="search" title="No queue has this message">It may have been done, cancelled or discarded: what succeeded is not kept unless its queue says keep_done.<//><//>`} />`;
}
