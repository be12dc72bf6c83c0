/** What else of the same kind there is in a message's queue: when it was put and how it stands. */
import { useLoaded } from "../../lib/data.js";
import { count, plural } from "../../lib/format.js";
import { Badge, Card, Empty, Failed, MessageLink, StateBadge } from "../../lib/parts.js";
import { at, go, href } from "../../lib/router.js";
import { Table } from "../../lib/table.js";
import { absolute, When } from "../../lib/time.js";
import { html } from "../../lib/ui.js";

/** How many of the same kind are looked at, and into how many parts their time is cut. */
const LIKE = 200, PARTS = 40;
/** How many of them are listed. */
const SHOWN = 20;
/** @type {Record<string, string>} */
const TONES = { ready: "info", scheduled: "plain", processing: "warn", done: "good", dead: "bad" };

/** What else of this kind there is in the queue, by when it was put and how it stands. @param {{message: any}} props */
export function SameKind({ message }) {
  const kind = message.kind;
  const { data, error, reload } = useLoaded(kind ? "messages" : null, { every: 30_000, query: { kind, queue: message.queue, limit: LIKE } });
  if (!kind) return html`<${Card}><${Empty} icon="search" title="It has no kind">With a kind, the name of its task, others like it would be here.<//><//>`;
  if (error && !data) return html`<${Card}><${Failed} error=${error} retry=${reload} /><//>`;
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  const like = data.messages.filter((/** @type {any} */ each) => each.kind === kind).sort((/** @type {any} */ a, /** @type {any} */ b) => b.put_at - a.put_at);
  return html`<${Card} flush title=${`${count(like.length)} of ${kind}${data.complete ? "" : ", and more"}`} actions=${html`<a class="inline-link" href=${href("/find", { kind })}>In every queue</a>`}>
    <${Strip} rows=${like} />
    <${Table} name="Messages of the same kind" rows=${like.slice(0, SHOWN)} open=${(/** @type {any} */ row) => go(at`/queues/${row.queue}/messages/${row.id}`)} columns=${[
      { id: "id", title: "Message", cell: (/** @type {any} */ row) => html`<${MessageLink} queue=${row.queue} id=${row.id} />${row.id === message.id ? html` <${Badge}>this one<//>` : null}` },
      { id: "state", title: "State", cell: (/** @type {any} */ row) => html`<${StateBadge} state=${row.state} />` },
      { id: "attempt", title: "Attempts", align: "end", wide: true, cell: (/** @type {any} */ row) => row.attempt },
      { id: "put", title: "Put", align: "end", cell: (/** @type {any} */ row) => html`<${When} at=${row.put_at} />` },
    ]} /><//>`;
}

/** When they were put, from left to right, each part by how they stand now. @param {{rows: any[]}} props */
function Strip({ rows }) {
  if (rows.length < 2) return null;
  const end = rows[0].put_at, begin = rows.at(-1).put_at, width = Math.max(1, (end - begin + 1) / PARTS);
  /** @type {Record<string, number>[]} */
  const parts = Array.from({ length: PARTS }, () => ({}));
  for (const row of rows) {
    const part = parts[Math.min(PARTS - 1, Math.floor((row.put_at - begin) / width))];
    part[row.state] = (part[row.state] ?? 0) + 1;
  }
  const most = Math.max(...parts.map((part) => Object.values(part).reduce((sum, n) => sum + n, 0)));
  return html`<figure class="kind-strip"><div class="kind-bars" role="img" aria-label=${`${plural(rows.length, "message")}, put from ${absolute(begin)} to ${absolute(end)}`}>
    ${parts.map((part, i) => html`<span key=${i}>${Object.entries(part).map(([state, n]) => html`<i key=${state} class=${TONES[state] ?? "plain"} title=${`${n} ${state}`} style=${{ height: `${(n / most) * 100}%` }}></i>`)}</span>`)}</div>
    <figcaption class="faint"><span>put ${absolute(begin)}</span><span>${absolute(end)}</span></figcaption></figure>`;
}
