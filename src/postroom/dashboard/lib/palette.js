/** ⌘K: go anywhere, do anything that this page offers, find messages by id or kind. */
import { standing } from "./data.js";
import { show } from "./dialog.js";
import { Icon } from "./icons.js";
import { keyCaps, pressable } from "./keys.js";
import { at, go } from "./router.js";
import { createKept, useStore } from "./store.js";
import { html, useMemo, useRef, useState } from "./ui.js";

/** @typedef {{words: string, hint?: string, icon?: string, run: () => void, keys?: string}} Entry */

/** Entries of the pages that are shown, and of the shell. @type {Set<() => Entry[]>} */
const sources = new Set();
/** @param {() => Entry[]} source @returns {() => void} */
export function offer(source) {
  sources.add(source);
  return () => sources.delete(source);
}

const recent = createKept("recent", "[]");
const MOST = 50, KEPT = 8;

/** Remember a message that was looked at. @param {string} queue @param {string} id */
export function remember(queue, id) {
  const rest = remembered().filter((each) => each.id !== id);
  recent.set(JSON.stringify([{ queue, id }, ...rest].slice(0, KEPT)));
}

/** @returns {{queue: string, id: string}[]} */
function remembered() {
  try {
    return JSON.parse(recent.get());
  } catch {
    return [];
  }
}

export const openPalette = () => show({ title: "Go to or do", body: Palette, bare: true });

/** @param {string[]} queues @returns {Entry[]} */
function entries(queues) {
  return [
    ...[...sources].flatMap((source) => source()),
    ...queues.map((queue) => ({ words: queue, hint: "queue", icon: "queues", run: () => go(at`/queues/${queue}`) })),
    ...remembered().map(({ queue, id }) => ({ words: id, hint: `recent in ${queue}`, icon: "message", run: () => go(at`/queues/${queue}/messages/${id}`) })),
  ];
}

/** @param {string} text @returns {Entry[]} Messages in every queue: by an id, if that is what it looks like, or by a part of their kind. */
const inQueues = (text) => [
  ...(/^[\w:.-]{16,}$/.test(text) ? [{ words: `Find message ${text}`, hint: "in all queues", icon: "search", run: () => go("/find", { id: text }) }] : []),
  ...(/^[0-9a-f]{32}$/.test(text) ? [] : [{ words: `Find messages of kind ${text}`, hint: "in all queues", icon: "search", run: () => go("/find", { kind: text }) }]),
];

/**
 * How well words fit: all letters in their order, better when together and at the beginnings of words; 0 is not at all.
 * @param {string} wanted @param {string} words
 */
export function fit(wanted, words) {
  const [needle, hay] = [wanted.toLowerCase(), words.toLowerCase()];
  const whole = hay.indexOf(needle);
  if (whole >= 0) return 1_000 - whole - hay.length / 100;
  let at = -1, score = 100;
  for (const letter of needle) {
    const next = hay.indexOf(letter, at + 1);
    if (next < 0) return 0;
    score -= next - at - 1;
    at = next;
  }
  return Math.max(score, 1) / 10;
}

/** @param {{close: (value?: any) => void}} props */
function Palette({ close }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  // As one string, which is another one only when a queue came or went: the palette may be open before the first answer.
  const names = useStore(standing, (room) => (room?.queues ?? []).map(({ queue }) => queue).join("\n"));
  const found = useMemo(() => {
    const [wanted, all] = [text.trim(), entries(names.split("\n").filter(Boolean))];
    if (!wanted) return all.slice(0, MOST);
    const scored = all.map((entry) => ({ entry, score: fit(wanted, entry.words) })).filter(({ score }) => score > 0);
    scored.sort((a, b) => b.score - a.score);
    return [...scored.slice(0, MOST).map(({ entry }) => entry), ...inQueues(wanted)];
  }, [text, names]);
  /** @param {Entry | undefined} entry */
  const run = (entry) => { if (entry) { close(); entry.run(); } };
  /** @param {number} step */
  const move = (step) => {
    const next = (chosen + step + found.length) % Math.max(1, found.length);
    setChosen(next);
    list.current?.children[next]?.scrollIntoView({ block: "nearest" });
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") run(found[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<div class="palette" onKeyDown=${key}>
    <div class="palette-input"><${Icon} name="search" />
      <input autofocus role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found[chosen] ? `palette-${chosen}` : undefined}
        aria-label="Go to a page, queue or message, or do something" placeholder="Go to a page, queue, message id or kind…"
        value=${text} onInput=${(/** @type {any} */ e) => { setText(e.target.value); setChosen(0); }} spellcheck=${false} autocomplete="off" /></div>
    <ul id="palette-list" role="listbox" aria-label="Results" ref=${list}>
      ${found.map((entry, i) => html`<li key=${`${entry.words} ${entry.hint}`} id=${`palette-${i}`} role="option" aria-selected=${i === chosen}
        onClick=${() => run(entry)} onMouseMove=${() => setChosen(i)}>
        <${Icon} name=${entry.icon ?? "chevron"} /><span class="palette-words">${entry.words}</span>
        ${entry.hint ? html`<span class="faint">${entry.hint}</span>` : null}
        ${entry.keys ? html`<${Caps} keys=${entry.keys} />` : null}</li>`)}
    </ul></div>`;
}

/** @param {{keys: string}} props */
const Caps = ({ keys }) => html`<span class="caps">${keyCaps(keys).map((cap, i) => html`<kbd key=${i}>${cap}</kbd>`)}</span>`;

export const openHelp = () => show({ title: "Keyboard", body: Help });

function Help() {
  /** @type {Map<string, import("./keys.js").Shortcut[]>} */
  const groups = new Map();
  for (const each of pressable()) {
    const group = each.group ?? "Everywhere";
    const list = groups.get(group) ?? [];
    if (!list.some((other) => other.keys === each.keys)) groups.set(group, [...list, each]);
  }
  const order = [...groups].sort(([a], [b]) => a.localeCompare(b));
  return html`<div class="help">${order.map(([group, list]) => html`<section key=${group}><h3>${group}</h3><dl>
    ${list.map((each) => html`<div key=${each.keys}><dt>${each.words}</dt><dd><${Caps} keys=${each.keys} /></dd></div>`)}</dl></section>`)}</div>`;
}
