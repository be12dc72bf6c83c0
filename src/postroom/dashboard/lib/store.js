/** Values that change, and components that follow them. */
import { useEffect, useRef, useState } from "./ui.js";

/**
 * @template T
 * @typedef {{get: () => T, set: (value: T) => void, update: (change: (value: T) => T) => void,
 *   subscribe: (listener: (value: T) => void) => () => void}} Store
 */

/**
 * @template T
 * @param {T} value
 * @returns {Store<T>}
 */
export function createStore(value) {
  /** @type {Set<(value: T) => void>} */
  const listeners = new Set();
  /** @param {T} next */
  const set = (next) => {
    if (Object.is(next, value)) return;
    value = next;
    for (const listener of [...listeners]) listener(value);
  };
  return {
    get: () => value,
    set,
    update: (change) => set(change(value)),
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/**
 * What is in a store, or a part of it: the component is drawn again only when that part changes.
 * @template T
 * @template [P=T]
 * @param {Store<T>} store
 * @param {(value: T) => P} [pick]
 * @returns {P}
 */
export function useStore(store, pick) {
  const choose = useRef(pick);
  choose.current = pick;
  const read = () => /** @type {P} */ (choose.current ? choose.current(store.get()) : store.get());
  const [, draw] = useState(0);
  const shown = useRef(read());
  shown.current = read();
  useEffect(() => {
    const look = () => {
      if (!Object.is(read(), shown.current)) draw((n) => n + 1);
    };
    look();
    return store.subscribe(look);
  }, [store]);
  return shown.current;
}

/**
 * A value that this browser keeps.
 * @param {string} name
 * @param {string} otherwise
 * @returns {Store<string>}
 */
export function createKept(name, otherwise) {
  const key = `postroom.${name}`;
  let found = null;
  try {
    found = localStorage.getItem(key);
  } catch {
    // Not allowed to keep anything: then it holds for this tab.
  }
  const store = createStore(found ?? otherwise);
  store.subscribe((value) => {
    try {
      localStorage.setItem(key, value);
    } catch {
      // As above.
    }
  });
  return store;
}
