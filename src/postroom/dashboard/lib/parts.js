/** The small things that pages are made of. */
import { Icon } from "./icons.js";
import { at, href } from "./router.js";
import { shortId } from "./format.js";
import { complain, toast } from "./toasts.js";
import { html, useEffect, useRef, useState } from "./ui.js";

/** @typedef {"good" | "warn" | "bad" | "info" | "plain"} Tone */

/** @param {{tone?: Tone, children?: any, dot?: boolean, title?: string}} props */
export const Badge = ({ tone = "plain", children, dot = false, title }) =>
  html`<span class=${`badge ${tone}`} title=${title}>${dot ? html`<i class="dot" aria-hidden="true"></i>` : null}${children}</span>`;

/** @type {Record<string, Tone>} */
const STATES = { ready: "info", scheduled: "plain", processing: "good", done: "good", dead: "bad" };
/** @param {{state: string}} props */
export const StateBadge = ({ state }) => html`<${Badge} tone=${STATES[state] ?? "plain"} dot>${state}<//>`;

/** The head of a page. @param {{title: any, children?: any, sub?: any, up?: {href: string, words: string}}} props */
export const Head = ({ title, children, sub, up }) => html`<header class="page-head">
  <div class="page-title">
    ${up ? html`<a class="up" href=${up.href}><${Icon} name="back" />${up.words}</a>` : null}
    <h1 tabindex="-1">${title}</h1>${sub ? html`<p class="muted">${sub}</p>` : null}</div>
  <div class="page-actions">${children}</div>
</header>`;

/** @param {{title?: any, actions?: any, children?: any, class?: string, flush?: boolean}} props */
export const Card = ({ title, actions, children, class: more = "", flush = false }) => html`<section class=${`card ${flush ? "flush" : ""} ${more}`}>
  ${title ? html`<header class="card-head"><h2>${title}</h2><div class="card-actions">${actions}</div></header>` : null}
  ${children}</section>`;

/**
 * Nothing to show: what would be here, why it is not, and what to do.
 * @param {{icon?: string, title: string, children?: any, command?: string}} props
 */
export const Empty = ({ icon = "queues", title, children, command }) => html`<div class="empty">
  <div class="empty-icon"><${Icon} name=${icon} /></div><h3>${title}</h3>
  ${children ? html`<p>${children}</p>` : null}${command ? html`<${Command} text=${command} />` : null}</div>`;

/** What could not be loaded, and again. @param {{error: Error, retry?: () => void}} props */
export const Failed = ({ error, retry }) => html`<div class="empty failed" role="alert"><div class="empty-icon"><${Icon} name="alert" /></div>
  <h3>This could not be loaded</h3><p>${error.message}</p>
  ${retry ? html`<button class="button" onClick=${retry}>Try again</button>` : null}</div>`;

/** A line for a terminal, to copy. @param {{text: string}} props */
export const Command = ({ text }) => html`<span class="command"><code>${text}</code><${Copy} text=${text} words="Copy the command" /></span>`;

/** @param {{text: string, words?: string}} props */
export function Copy({ text, words = "Copy" }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    const timer = isDone ? setTimeout(() => setDone(false), 1_500) : undefined;
    return () => clearTimeout(timer);
  }, [isDone]);
  return html`<button type="button" class="icon-button copy" aria-label=${isDone ? "Copied" : words} title=${words}
    onClick=${() => copy(text).then(() => setDone(true), (error) => complain(error, "copy"))}><${Icon} name=${isDone ? "check" : "copy"} /></button>`;
}

/** Over plain http the browser's clipboard is closed: then by the old way. @param {string} text */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser does not allow it");
  toast({ text: "Copied." });
  return undefined;
}

/** @param {{queue: string}} props */
export const QueueLink = ({ queue }) => html`<a class="queue-link" href=${href(at`/queues/${queue}`)}>${queue}</a>`;

/** The same where many stand below each other: what a name shares with its group (up to its last dot) steps back. @param {{queue: string}} props */
export function GroupedLink({ queue }) {
  const end = queue.lastIndexOf(".") + 1;
  return html`<a class="queue-link" href=${href(at`/queues/${queue}`)}>${end ? html`<span class="muted">${queue.slice(0, end)}</span>` : null}${queue.slice(end)}</a>`;
}

/** @param {{queue: string, id: string, whole?: boolean}} props */
export const MessageLink = ({ queue, id, whole = false }) =>
  html`<a class="id" href=${href(at`/queues/${queue}/messages/${id}`)} title=${id}>${whole ? id : shortId(id)}</a>`;

/** One of a few. @param {{name: string, value: string, options: {value: string, words: any, count?: any}[], set: (value: string) => void}} props */
export const Tabs = ({ name, value, options, set }) => html`<div class="tabs" role="group" aria-label=${name}>
  ${options.map((option) => html`<button key=${option.value} type="button" aria-pressed=${option.value === value} onClick=${() => set(option.value)}>
    ${option.words}${option.count != null ? html`<span class="count">${option.count}</span>` : null}</button>`)}</div>`;

/**
 * Actions behind one button. @param {{label?: string, items: {words: string, run: () => void, danger?: boolean, icon?: string}[]}} props
 */
export function Menu({ label = "More", items }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    if (!isOpen) return undefined;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(".menu-list button"))?.focus();
    /** @param {Event} event */
    const leave = (event) => {
      if (event instanceof KeyboardEvent ? event.key === "Escape" : !box.current?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("keydown", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("keydown", leave);
    };
  }, [isOpen]);
  if (!items.length) return null;
  return html`<div class="menu" ref=${box}>
    <button type="button" class="icon-button" aria-label=${label} aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>
    ${isOpen ? html`<div class="menu-list">${items.map((item) => html`<button key=${item.words} type="button" class=${item.danger ? "danger" : ""}
      onClick=${() => { setOpen(false); item.run(); }}>${item.icon ? html`<${Icon} name=${item.icon} />` : null}${item.words}</button>`)}</div>` : null}
  </div>`;
}

/** A bar of parts. @param {{parts: {value: number, tone: string, words: string}[], about?: string}} props about: said before its parts, where there are more of them */
export function Bar({ parts, about = "" }) {
  const sum = parts.reduce((all, part) => all + part.value, 0);
  const words = about + parts.filter((part) => part.value).map((part) => part.words).join(", ") || "empty";
  return html`<span class=${`bar${about ? " more" : ""}`} role="img" aria-label=${words} title=${words}>
    ${sum ? parts.map((part) => html`<i key=${part.words} class=${part.tone} style=${{ flexGrow: part.value / sum }}></i>`) : null}</span>`;
}
