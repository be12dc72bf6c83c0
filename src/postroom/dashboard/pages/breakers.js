/** Breakers: which neighbours are down, since when, and by whose word. */
import { path, post } from "../lib/api.js";
import { useLoaded } from "../lib/data.js";
import { confirm } from "../lib/dialog.js";
import { Badge, Card, Empty, Failed, Head } from "../lib/parts.js";
import { useCan } from "../lib/session.js";
import { Table } from "../lib/table.js";
import { When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html } from "../lib/ui.js";

/** @type {Record<string, import("../lib/parts.js").Tone>} */
const TONES = { closed: "good", half_open: "warn", open: "bad" };

export function Breakers() {
  const { data, error, reload } = useLoaded("breakers", { every: 3_000, when: (event) => event.name === "audit" });
  const may = useCan("breaker");
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  const rows = Object.entries(data ?? {}).map(([name, standing]) => ({ name, .../** @type {any} */ (standing) }));
  /** @param {string} name @param {"open" | "close"} verb */
  const set = async (name, verb) => {
    const asked = await confirm({
      title: verb === "open" ? `Open ${name}` : `Close ${name}`, reason: true, verb: verb === "open" ? "Open it" : "Close it", danger: verb === "open",
      scope: verb === "open" ? `Work that depends on ${name} waits until somebody closes it.` : `Work that depends on ${name} goes on, and its failures are forgotten.`,
    });
    if (!asked) return;
    await act(() => post(path`breakers/${name}` + `/${verb}`, { reason: asked.reason }), { doing: `${verb} ${name}`, done: verb === "open" ? `${name} is open.` : `${name} is closed.` });
    reload();
  };
  return html`<${Head} title="Breakers" sub="Queues that depend on an open breaker wait, instead of using up attempts." />
    <${Card} flush><${Table} name="Breakers" rows=${rows} isLoading=${!data} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
      { id: "name", title: "Breaker", cell: (/** @type {any} */ row) => html`<strong>${row.name}</strong>` },
      { id: "state", title: "State", cell: (/** @type {any} */ row) => html`<${Badge} tone=${TONES[row.state] ?? "plain"} dot>${row.state.replace("_", " ")}<//>${row.forced ? html` <${Badge}>by hand<//>` : null}` },
      { id: "failures", title: "Failures counted", align: "end", wide: true, cell: (/** @type {any} */ row) => row.failures.length },
      { id: "since", title: "Since", wide: true, cell: (/** @type {any} */ row) => html`<${When} at=${row.since || null} />` },
      { id: "reason", title: "Reason", wide: true, grows: true, cell: (/** @type {any} */ row) => html`<span title=${row.reason}>${row.reason || "—"}</span>` },
      ...(may ? [{ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => (row.state === "closed"
        ? html`<button class="button small" aria-label=${`Open ${row.name}`} onClick=${() => set(row.name, "open")}>Open…</button>`
        : html`<button class="button small" aria-label=${`Close ${row.name}`} onClick=${() => set(row.name, "close")}>Close…</button>`) }] : []),
    ]} empty=${html`<${Empty} icon="breakers" title="No shared breaker yet" command="postroom breaker ls">Breaker("bank", room=room) around calls to a neighbour shows here how it stands, for all processes.<//>`} /><//>`;
}
