/** The keyboard: what every page can be told without a mouse. */
import { useLayoutEffect, useRef } from "./ui.js";

/** @typedef {{keys: string, words: string, run: (event: KeyboardEvent) => void, group?: string}} Shortcut
 *   keys: "x", "Shift+X", "g q" (one after the other), "Mod+k" (⌘ or Ctrl) */

/** @type {Shortcut[]} */
const shortcuts = [];
/** Two keys of one sequence are not further apart (ms). */
const TOGETHER = 1_200;
let before = "", at = 0;

/** @returns {Shortcut[]} What can be pressed now. */
export const pressable = () => [...shortcuts];

/** @param {Shortcut[]} added @returns {() => void} */
export function addKeys(added) {
  shortcuts.unshift(...added); // what came last is asked first
  return () => added.forEach((each) => shortcuts.splice(shortcuts.indexOf(each), 1));
}

/** Shortcuts of a component, while it is there; each does what it was last drawn with. @param {Shortcut[]} added @param {any[]} [deps] */
export function useKeys(added, deps = []) {
  const latest = useRef(added);
  latest.current = added;
  useLayoutEffect( // at once: whoever sees a button may press its key
    () => addKeys(added.map((each, i) => ({ ...each, run: (event) => latest.current[i]?.run(event) }))),
    [added.map(({ keys }) => keys).join(), ...deps],
  );
}

/** @param {KeyboardEvent} event */
function name(event) {
  const mod = event.metaKey || event.ctrlKey ? "Mod+" : "";
  const shift = event.shiftKey && event.key.length === 1 && event.key.toLowerCase() !== event.key.toUpperCase() ? "Shift+" : "";
  return mod + shift + (event.key === " " ? "Space" : event.key);
}

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  && !(target instanceof HTMLInputElement && /^(checkbox|radio|button)$/.test(target.type));

document.addEventListener("keydown", (event) => {
  const pressed = name(event);
  if (event.defaultPrevented || event.altKey || ["Shift", "Control", "Meta"].includes(event.key)) return;
  const isOpen = document.querySelector("dialog[open]") !== null;
  if ((isTyping(event.target) || isOpen) && !pressed.startsWith("Mod+")) return;
  const sequence = event.timeStamp - at < TOGETHER && before ? `${before} ${pressed}` : "";
  const found = shortcuts.find(({ keys }) => keys === sequence) ?? shortcuts.find(({ keys }) => keys === pressed);
  [before, at] = found ? ["", 0] : [pressed, event.timeStamp];
  // A button or link that has the focus keeps its own keys.
  if (!found || (/^(Enter|Space)$/.test(pressed) && event.target instanceof Element && event.target.closest("a, button, summary"))) return;
  event.preventDefault();
  found.run(event);
});

/** @param {string} keys @returns {string[]} As on the keys of this machine. */
export function keyCaps(keys) {
  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  return keys.split(" ").map((key) => key.replace("Mod+", mac ? "⌘" : "Ctrl ").replace("Shift+", "⇧").replace("Escape", "Esc").replace(/ k$/, " K").replace(/^⌘k$/, "⌘K"));
}
