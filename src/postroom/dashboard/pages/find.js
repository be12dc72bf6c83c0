/** A message by its id alone, in whatever queue it is. */
import { path } from "../lib/api.js";
import { useLoaded } from "../lib/data.js";
import { Card, Empty, Failed, Head, MessageLink, QueueLink, StateBadge } from "../lib/parts.js";
import { at, href, useQuery } from "../lib/router.js";
import { Table } from "../lib/table.js";
import { html, useEffect } from "../lib/ui.js";

export function Find() {
  const [id] = useQuery("id");
  const { data, error, reload } = useLoaded(id ? path`messages/${id}` : null, { every: 30_000 });
  const found = data?.messages ?? [];
  useEffect(() => {
    // In one place: then that is where to go, and back leads to where the search began.
    if (found.length === 1) location.replace(href(at`/queues/${found[0].queue}/messages/${found[0].id}`));
  }, [data]);
  return html`<${Head} title="Find a message" sub=${id} />
    ${error ? html`<${Card}><${Failed} error=${error} retry=${reload} /><//>` : html`<${Table} name="Messages with this id" rows=${found} isLoading=${!data && Boolean(id)} keyOf=${(/** @type {any} */ row) => row.queue}
      columns=${[
        { id: "queue", title: "Queue", cell: (/** @type {any} */ row) => html`<${QueueLink} queue=${row.queue} />` },
        { id: "id", title: "Message", cell: (/** @type {any} */ row) => html`<${MessageLink} queue=${row.queue} id=${row.id} whole />` },
        { id: "state", title: "State", cell: (/** @type {any} */ row) => html`<${StateBadge} state=${row.state} />` }]}
      empty=${html`<${Card}><${Empty} icon="search" title="No queue has this message">It may have been done, cancelled or discarded: what succeeded is not kept unless its queue says keep_done.<//><//>`} />`}`;
}
