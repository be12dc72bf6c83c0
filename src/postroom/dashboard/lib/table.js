/**
 * A table: a real one, of which only the rows in sight are drawn. Rows have one height, so 50,000 of them
 * cost as much as 50. The keyboard moves (j, k), opens (Enter) and selects (x, Shift+X).
 */
import { ariaSort, Chooser, Title, useColumns } from "./columns.js";
import { Icon } from "./icons.js";
import { useKeys } from "./keys.js";
import { count, plural } from "./format.js";
import { decode, useQuery } from "./router.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{id: string, title: string, cell: (row: Row) => any, align?: "end", width?: string, wide?: boolean,
 *   grows?: boolean, label?: string, sort?: (row: Row) => number | string}} Column
 *   wide: only where there is room (not on a phone); grows: takes what the others leave and is cut there; width: a CSS length; label: the title for screen readers;
 *   sort: what its rows can be sorted by, where all of them are loaded
 * @typedef {{selected: Set<string>, set: (selected: Set<string>) => void}} Selection
 */

/** The height of a row (px), rows drawn around those in sight, from where on not all are drawn, and up to where a table is short. */
const ROW = 40, AROUND = 12, LARGE = 120, SHORT = 8;

/** So many selected rows stand in the address; more would make it longer than some will carry. */
const NAMED = 50;

/** A selection that outlives every update of the rows, and is in the address too. @param {string} of Another name is another selection. @returns {Selection} */
export function useSelection(of) {
  const [named, setNamed] = useQuery("selected");
  const [kept, setKept] = useState(() => ({ of, selected: new Set(named ? named.split(",").map(decode) : []) }));
  const selected = kept.of === of ? kept.selected : new Set(/** @type {string[]} */ ([]));
  const names = selected.size <= NAMED ? [...selected].map(encodeURIComponent).join(",") : "";
  useEffect(() => void (names !== named && setNamed(names)), [names]);
  return { selected, set: (next) => setKept({ of, selected: next }) };
}

/**
 * @param {{name: string, columns: Column[], rows: Row[], keyOf?: (row: Row) => string, open?: (row: Row) => void,
 *   link?: (row: Row) => string, selection?: Selection, rowClass?: (row: Row) => string, total?: number,
 *   pending?: number, showNew?: () => void, more?: () => void, hasMore?: boolean, isLoading?: boolean,
 *   view?: (first: number, isStill: boolean) => void, inSight?: (keys: string[]) => void, fill?: boolean, empty?: any}} props
 *   name: for screen readers; fill: takes the height that is left and scrolls inside; inSight: is told which rows are, whenever others are
 */
export function Table({
  name, columns, rows: given, keyOf = (row) => row.id, open, selection, rowClass, total, pending = 0, showNew, more,
  hasMore = false, isLoading = false, view, inSight, fill = false, empty,
}) {
  const order = useColumns(columns, given);
  const { sorted: rows, shown } = order;
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const { top, height } = useScroll(frame, fill);
  const [current, setCurrent] = useState("");
  const anchor = useRef("");
  const isLarge = fill && rows.length > LARGE;
  const from = isLarge ? Math.max(0, Math.floor(top / ROW) - AROUND) : 0;
  const to = isLarge ? Math.min(rows.length, Math.ceil((top + height) / ROW) + AROUND) : rows.length;
  useEffect(() => {
    view?.(Math.floor(top / ROW), top < ROW && !selection?.selected.size);
    if (hasMore && !isLoading && (!isLarge || to >= rows.length - LARGE)) more?.();
  });
  const seen = inSight ? (fill ? rows.slice(Math.floor(top / ROW), Math.ceil((top + height) / ROW)) : rows).map(keyOf) : [];
  useEffect(() => inSight?.(seen), [seen.join("\n")]);

  const at = () => rows.findIndex((row) => keyOf(row) === current);
  /** @param {number} index */
  const moveTo = (index) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (!row) return;
    setCurrent(keyOf(row));
    // From a button that was pressed before: Enter is now for the row.
    if (fill) frame.current?.focus({ preventScroll: true });
    else if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    reveal(frame.current, rows.indexOf(row), fill);
  };
  /** @param {Row} row @param {boolean} [isRange] */
  const toggle = (row, isRange = false) => {
    if (!selection) return;
    const next = new Set(selection.selected);
    const key = keyOf(row);
    const begin = isRange ? rows.findIndex((each) => keyOf(each) === anchor.current) : -1;
    if (begin >= 0) {
      const end = rows.indexOf(row);
      for (const each of rows.slice(Math.min(begin, end), Math.max(begin, end) + 1)) next.add(keyOf(each));
    } else if (!next.delete(key)) next.add(key);
    anchor.current = key;
    selection.set(next);
  };
  const chosen = () => rows[at()];
  useKeys([
    { keys: "j", words: "Next row", group: "Tables", run: () => moveTo(at() + 1) },
    { keys: "k", words: "Previous row", group: "Tables", run: () => moveTo(at() < 0 ? 0 : at() - 1) },
    ...(open ? [{ keys: "Enter", words: "Open the row", group: "Tables", run: () => chosen() && open(chosen()) }] : []),
    ...(selection ? [
      { keys: "x", words: "Select the row", group: "Tables", run: () => chosen() && toggle(chosen()) },
      { keys: "Shift+X", words: "Select all rows up to here", group: "Tables", run: () => chosen() && toggle(chosen(), true) },
    ] : []),
  ]);

  const all = selection && rows.length > 0 && rows.every((row) => selection.selected.has(keyOf(row)));
  if (!rows.length && !isLoading && empty) return empty;
  return html`<div class=${`table-box${fill ? " fill" : ""}${rows.length > SHORT ? " long" : ""}`}>
    ${pending > 0 ? html`<button class="new-pill" onClick=${() => { showNew?.(); if (frame.current) frame.current.scrollTop = 0; }}>
      <${Icon} name="up" />${plural(pending, "new row")} — show</button>` : null}
    <div class="table-frame" ref=${frame} tabindex=${fill ? 0 : undefined} role=${fill ? "region" : undefined} aria-label=${fill ? name : undefined}>
      <table aria-rowcount=${total ?? (hasMore ? -1 : rows.length)}>
        <caption class="sr-only">${name}</caption>
        <thead><tr>
          ${selection ? html`<th class="tick" scope="col"><input type="checkbox" aria-label="Select all loaded rows" checked=${all}
            onChange=${() => selection.set(all ? new Set() : new Set(rows.map(keyOf)))} /></th>` : null}
          ${shown.map((column) => html`<th key=${column.id} scope="col" class=${cellClass(column)} aria-sort=${ariaSort(column, order)} style=${column.width ? { width: column.width } : undefined}>
            <${Title} column=${column} order=${order} /></th>`)}
        </tr></thead>
        <tbody>
          ${from > 0 ? html`<tr class="spacer" aria-hidden="true" key="above" style=${{ height: `${from * ROW}px` }}></tr>` : null}
          ${rows.slice(from, to).map((row, i) => {
            const key = keyOf(row);
            const isSelected = selection?.selected.has(key) ?? false;
            return html`<tr key=${key} data-key=${key} aria-rowindex=${from + i + 2}
                class=${`${open ? "opens" : ""}${isSelected ? " selected" : ""}${key === current ? " current" : ""}${row.gone ? " gone" : ""} ${rowClass?.(row) ?? ""}`}
                onClick=${(/** @type {MouseEvent} */ event) => open && isPlain(event) && (setCurrent(key), open(row))}>
              ${selection ? html`<td class="tick"><input type="checkbox" aria-label=${`Select ${key}`} checked=${isSelected}
                onClick=${(/** @type {MouseEvent} */ event) => toggle(row, event.shiftKey)} /></td>` : null}
              ${shown.map((column) => html`<td key=${column.id} class=${cellClass(column)}>${column.cell(row)}</td>`)}
            </tr>`;
          })}
          ${to < rows.length ? html`<tr class="spacer" aria-hidden="true" key="below" style=${{ height: `${(rows.length - to) * ROW}px` }}></tr>` : null}
        </tbody>
      </table>
      ${isLoading && !rows.length ? html`<div class="loading" role="status">Loading…</div>` : null}
    </div>
    ${fill && (rows.length || !isLoading) ? html`<div class="table-foot">${count(rows.length)}${hasMore ? " loaded, more as you scroll" : rows.length === 1 ? " row" : " rows"}${
      selection?.selected.size ? html` · <strong>${count(selection.selected.size)} selected</strong> <button class="link" onClick=${() => selection.set(new Set())}>clear</button>` : null}<${Chooser} columns=${columns} order=${order} /></div>` : null}
  </div>`;
}

/** @param {Column} column */
const cellClass = (column) => `${column.align === "end" ? "end" : ""}${column.wide ? " wide-only" : ""}${column.grows ? " grows" : ""}`;

/** A click on the row itself, not on what is in it, nor the end of marking text. @param {MouseEvent} event */
const isPlain = (event) =>
  !(event.target instanceof Element && event.target.closest("a, button, input, select, summary, .menu")) && !String(getSelection());

/**
 * @param {HTMLElement | null} frame @param {number} index @param {boolean} isInside
 */
function reveal(frame, index, isInside) {
  if (!frame) return;
  if (isInside) {
    const y = index * ROW;
    if (y < frame.scrollTop) frame.scrollTop = y;
    else if (y + 2 * ROW > frame.scrollTop + frame.clientHeight) frame.scrollTop = y + 2 * ROW - frame.clientHeight;
  } else frame.querySelectorAll("tbody tr")[index]?.scrollIntoView({ block: "nearest" });
}

/** Where a frame is scrolled to, in steps of rows: between them nothing has to be drawn. @param {{current: HTMLDivElement | null}} frame @param {boolean} isOn */
function useScroll(frame, isOn) {
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  useLayoutEffect(() => {
    const node = frame.current;
    if (!node || !isOn) return undefined;
    const look = () => {
      const top = Math.floor(node.scrollTop / ROW) * ROW, height = node.clientHeight;
      setSeen((before) => (before.top === top && before.height === height ? before : { top, height }));
    };
    const watcher = new ResizeObserver(look);
    watcher.observe(node);
    node.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watcher.disconnect();
      node.removeEventListener("scroll", look);
    };
  }, [isOn, frame.current]);
  return seen;
}
