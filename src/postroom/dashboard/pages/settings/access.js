/** What the engine can, and what each role may do: both as the server tells it. */
import { Badge, Card } from "../../lib/parts.js";
import { Table } from "../../lib/table.js";
import { html } from "../../lib/ui.js";

/** What a capability means, if it is there and if not. @type {Record<string, [string, string, string]>} */
const WORDS = {
  durable: ["Durable", "messages survive the end of every process", "messages end with the process that holds them"],
  shared: ["Shared", "several processes can open the same store", "one process alone can open it"],
  blocking: ["Blocking", "a call may wait for a disk or a network, so the server makes it in a thread", "no call waits for a disk or a network"],
  joins: ["Joins", "a put can join a transaction of the caller's own", "a put is a transaction of its own"],
};

/** @param {{told: Record<string, boolean>}} props */
export const Capabilities = ({ told }) => html`<${Card} title="What the engine can"><dl class="facts">${Object.entries(told).map(([name, can]) => {
  const [title, yes, no] = WORDS[name] ?? [name, "", ""];
  return html`<div key=${name}><dt>${title}</dt><dd><${Badge} tone=${can ? "info" : "plain"}>${can ? "yes" : "no"}<//> ${can ? yes : no}</dd></div>`;
})}</dl><//>`;

/** @typedef {{right: string, roles: string[], does: string[]}} Right */

const ROLES = ["viewer", "operator", "admin"];

/** @param {{rights: Right[]}} props */
export const Roles = ({ rights }) => html`<${Card} title="What each role may do" flush><${Table} name="What each role may do" rows=${rights} keyOf=${(/** @type {Right} */ row) => row.right} columns=${[
  { id: "right", title: "Right", cell: (/** @type {Right} */ row) => html`<code>${row.right}</code>` },
  ...ROLES.map((role) => ({ id: role, title: role, cell: (/** @type {Right} */ row) => (row.roles.includes(role) ? html`<${Badge} tone="good">yes<//>` : html`<span class="faint">no</span>`) })),
  { id: "does", title: "For", wide: true, grows: true, cell: (/** @type {Right} */ row) => html`<span class="muted" title=${row.does.join(", ")}>${row.does.join(", ")}</span>` },
]} /><//>`;
