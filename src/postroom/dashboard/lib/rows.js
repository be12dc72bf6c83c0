/**
 * Rows of a long list, by keyset pages. What was loaded stays where it is: a row that changed changes in its
 * place, one that is gone fades first, and new ones wait until they are asked for, unless nobody would notice.
 */
import { Problem } from "./api.js";
import { keepUp } from "./data.js";
import { useCallback, useEffect, useRef, useState } from "./ui.js";

/** Rows of one page. */
const PAGE = 200;
/** A row that is gone is seen for so long (ms). */
const FADE = 4_000;

/**
 * @typedef {Record<string, any>} Row
 * @typedef {{from: string | null, rows: Row[], next: string | null, scanned: number, isLimited: boolean}} Page
 * @typedef {{rows: Row[], cursor: string | null, scanned?: number, stopped_by?: string | null}} Answer
 *   of a search: how many it looked at, and what made it stop
 * @typedef {{rows: Row[], pending: number, isLoading: boolean, hasMore: boolean, error: Problem | null, scanned: number, isLimited: boolean,
 *   more: () => void, showNew: () => void, reload: () => void, view: (first: number, isStill: boolean) => void}} Rows
 */

/**
 * @param {(cursor: string | null, limit: number) => Promise<Answer>} fetchPage
 * @param {{of: string, key?: (row: Row) => string, every?: number, when?: (event: import("./live.js").Event) => boolean}} options
 *   of: names the list; another name is another list, which begins anew
 *   The answer is of as many as were `scanned`, and `isLimited` when the last page is short because a search stopped at its bound.
 * @returns {Rows}
 */
export function useRows(fetchPage, { of, key = (row) => row.id, every = 3_000, when }) {
  const [shown, setShown] = useState(() => empty());
  const list = useRef(/** @type {ReturnType<typeof listOf> | null} */ (null));
  useEffect(() => {
    const made = listOf(fetchPage, key, setShown);
    list.current = made;
    setShown(empty());
    const kept = keepUp(made.refresh, { every, when });
    made.soon = kept.soon;
    return () => {
      made.end();
      kept.stop();
    };
  }, [of]);
  return {
    ...shown,
    more: useCallback(() => void list.current?.more(), []),
    showNew: useCallback(() => list.current?.showNew(), []),
    reload: useCallback(() => list.current?.soon(), []),
    view: useCallback((first, isStill) => list.current?.view(first, isStill), []),
  };
}

const empty = () => ({ rows: /** @type {Row[]} */ ([]), pending: 0, isLoading: true, hasMore: false, scanned: 0, isLimited: false, error: /** @type {Problem | null} */ (null) });

/**
 * @param {(cursor: string | null, limit: number) => Promise<Answer>} fetchPage
 * @param {(row: Row) => string} key
 * @param {(shown: ReturnType<typeof empty>) => void} tell
 */
function listOf(fetchPage, key, tell) {
  /** @type {Page[]} */
  let pages = [];
  /** New pages that wait for being asked for, by their number. @type {Map<number, Page>} */
  const waiting = new Map();
  let isOver = false, isMore = false, first = 0, isStill = false;
  /** @type {Problem | null} */
  let error = null;

  const flat = () => pages.flatMap((page) => page.rows);
  const draw = () => {
    if (isOver) return;
    const rows = flat();
    tell({
      rows, pending: waiting.size ? countNew(rows) : 0, isLoading: isMore || (!pages.length && !error), hasMore: Boolean(pages.at(-1)?.next), error,
      scanned: pages.reduce((sum, page) => sum + page.scanned, 0), isLimited: pages.at(-1)?.isLimited ?? false,
    });
  };

  /** @param {Row[]} rows How many of those that wait are not among them. */
  const countNew = (rows) => {
    const there = new Set(rows.map(key));
    return [...waiting.values()].reduce((sum, page) => sum + page.rows.filter((row) => !there.has(key(row))).length, 0);
  };

  /** @param {string | null} from @returns {Promise<Page>} */
  const load = async (from) => {
    const { rows, cursor, scanned = rows.length, stopped_by } = await fetchPage(from, PAGE);
    return { from, rows, next: cursor, scanned, isLimited: Boolean(stopped_by) && stopped_by !== "limit" };
  };

  /** The page that the first visible row is on. */
  const visible = () => {
    let before = 0;
    for (const [number, page] of pages.entries()) {
      before += page.rows.length;
      if (first < before) return number;
    }
    return Math.max(0, pages.length - 1);
  };

  /** @param {number} number @param {Page} fresh */
  const merge = (number, fresh) => {
    const old = pages[number];
    const known = new Set(old.rows.map(key));
    const hasNew = () => fresh.rows.some((row) => !known.has(key(row)));
    if (hasNew()) { // only then all pages are looked through: mostly nothing has moved
      const elsewhere = new Set(pages.flatMap((page, i) => (i === number ? [] : page.rows.map(key))));
      fresh.rows = fresh.rows.filter((row) => !elsewhere.has(key(row)));
    }
    const isNew = hasNew();
    const now = new Map(fresh.rows.map((row) => [key(row), row]));
    const isLast = number === pages.length - 1;
    if (!isNew || isStill || !old.rows.length || (isLast && appendsOnly(fresh.rows, known))) {
      waiting.delete(number);
      pages[number] = isLast ? { ...fresh, rows: withFading(old.rows, fresh.rows, now) } : { ...old, rows: withFading(old.rows, fresh.rows, now) };
    } else {
      waiting.set(number, fresh);
      pages[number] = { ...old, rows: old.rows.map((row) => now.get(key(row)) ?? faded(row)).filter(isThere) };
    }
  };

  /** @param {Row[]} rows @param {Set<string>} known Whether all that is new comes behind all that is known. */
  const appendsOnly = (rows, known) => {
    const begins = rows.findIndex((row) => !known.has(key(row)));
    return rows.slice(begins).every((row) => !known.has(key(row)));
  };

  /** @param {Row[]} old @param {Row[]} fresh @param {Map<string, Row>} now The fresh ones, and between them what just went. */
  const withFading = (old, fresh, now) => {
    const result = [...fresh];
    old.forEach((row, place) => {
      if (!now.has(key(row)) && isThere(faded(row))) result.splice(Math.min(place, result.length), 0, faded(row));
    });
    return result;
  };

  const refresh = async () => {
    try {
      if (!pages.length) pages = [await load(null)];
      else {
        const number = visible();
        const numbers = number === 0 ? [0] : [0, number];
        for (const each of numbers) merge(each, await load(pages[each].from));
      }
      error = null;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      error = problem;
    }
    draw();
  };

  return {
    refresh,
    soon: () => {},
    more: async () => {
      const next = pages.at(-1)?.next;
      if (isMore || !next) return;
      isMore = true;
      draw();
      try {
        const page = await load(next);
        const there = new Set(flat().map(key));
        pages.push({ ...page, rows: page.rows.filter((row) => !there.has(key(row))) });
        error = null;
      } catch (problem) {
        error = problem instanceof Problem ? problem : null;
      }
      isMore = false;
      draw();
    },
    showNew: () => {
      for (const [number, page] of waiting) pages[number] = number === pages.length - 1 ? page : { ...pages[number], rows: page.rows };
      waiting.clear();
      draw();
    },
    /** @param {number} row @param {boolean} still Where the screen is; still: new rows may come in by themselves */
    view: (row, still) => {
      first = row;
      isStill = still;
    },
    end: () => {
      isOver = true;
    },
  };
}

/** @param {Row} row */
const faded = (row) => (row.gone ? row : { ...row, gone: Date.now() });
/** @param {Row} row */
const isThere = (row) => !row.gone || Date.now() - row.gone < FADE;
