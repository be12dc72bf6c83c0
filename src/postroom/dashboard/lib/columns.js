/** Which columns of a table are shown, and by which its rows are sorted: both are in the address. */
import { useQuery } from "./router.js";
import { html } from "./ui.js";

/** @typedef {import("./table.js").Column} Column @typedef {import("./rows.js").Row} Row */

/**
 * ?sort=ready, or -ready for the greatest first; ?hide=oldest,sla.
 * @param {Column[]} columns @param {Row[]} rows
 */
export function useColumns(columns, rows) {
  const [sort, setSort] = useQuery("sort"), [hide, setHide] = useQuery("hide");
  const hidden = new Set(hide.split(","));
  const shown = columns.filter((column, i) => i === 0 || !hidden.has(column.id));
  const down = sort.startsWith("-");
  const by = columns.find((column) => column.sort && column.id === sort.slice(down ? 1 : 0));
  /** What a click makes of it: greatest first, least first, as it came. @param {string} id */
  const turn = (id) => setSort(sort === `-${id}` ? id : sort === id ? "" : `-${id}`);
  /** @param {string} id */
  const toggle = (id) => setHide(columns.map((each) => each.id).filter((each) => hidden.has(each) !== (each === id)).join(","));
  return { shown, hidden, by: by?.id, down, turn, toggle, sorted: by?.sort ? sortedBy(rows, by.sort, down) : rows };
}

/** @param {Row[]} rows @param {(row: Row) => number | string} value @param {boolean} down */
function sortedBy(rows, value, down) {
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    return left < right ? -sign : left > right ? sign : 0;
  });
}

/** What stands above a column: its title, and a button where rows can be sorted by it. @param {{column: Column, order: ReturnType<typeof useColumns>}} props */
export function Title({ column, order }) {
  if (!column.sort) return column.title || html`<span class="sr-only">${column.label ?? column.id}</span>`;
  return html`<button type="button" class="sort" onClick=${() => order.turn(column.id)}>${column.title}<span aria-hidden="true">${order.by === column.id ? (order.down ? " ↓" : " ↑") : ""}</span></button>`;
}

/** For who listens. @param {Column} column @param {ReturnType<typeof useColumns>} order */
export const ariaSort = (column, order) => (order.by === column.id ? (order.down ? "descending" : "ascending") : undefined);

/** What can be left out. @param {{columns: Column[], order: ReturnType<typeof useColumns>}} props */
export const Chooser = ({ columns, order }) => html`<details class="columns"><summary>Columns</summary><div class="menu-list">
  ${columns.slice(1).map((column) => html`<label key=${column.id}><input type="checkbox" checked=${!order.hidden.has(column.id)} onChange=${() => order.toggle(column.id)} />${column.title || column.label || column.id}</label>`)}</div></details>`;
