/** What is around every page: where one can go, whether it is live, who looks. */
import { standing, total } from "./data.js";
import { Dialogs } from "./dialog.js";
import { short } from "./format.js";
import { Icon } from "./icons.js";
import { Jobs } from "./jobs.js";
import { addKeys, keyCaps } from "./keys.js";
import { held, state } from "./live.js";
import { offer, openHelp, openPalette } from "./palette.js";
import { go, href, match, place } from "./router.js";
import { can, logOut, roleName, session, useCan } from "./session.js";
import { useStore } from "./store.js";
import { nextTheme, theme } from "./theme.js";
import { act, complain, Toasts } from "./toasts.js";
import { nextZone, zone } from "./time.js";
import { html, useEffect, useLayoutEffect } from "./ui.js";

/**
 * @typedef {{path: string, title: string, page: import("./ui.js").Component, icon?: string, key?: string,
 *   right?: string, count?: (room: import("./data.js").Standing) => number, alarm?: (room: import("./data.js").Standing) => boolean}} PageEntry
 *   One with an icon stands in the navigation; key: g and this key go there; right: what one must be allowed
 */

/** @type {Record<string, {words: string, title: string}>} */
const LIVE = {
  connecting: { words: "Connecting", title: "Opening the line of live events" },
  live: { words: "Live", title: "Changes are shown as they happen. Click to hold the screen still." },
  polling: { words: "Polling", title: "No live events get through: asking every few seconds instead." },
  paused: { words: "Paused", title: "The screen stands still. Click to go on." },
  offline: { words: "Offline", title: "The server cannot be reached. Trying again." },
};

/** @param {{pages: PageEntry[]}} props */
export function Shell({ pages }) {
  const { path } = useStore(place);
  const found = pages.map((entry) => ({ entry, names: match(entry.path, path) })).find(({ names }) => names);
  useShortcuts(pages);
  useStore(zone); // every moment on the page is written anew
  useEffect(() => {
    // Names in the title, so that ten open tabs can be told apart.
    document.title = found ? `${Object.values(found.names ?? {}).at(-1) ?? found.entry.title} · Postroom` : "Postroom";
    /** @type {HTMLElement | null} */
    const heading = document.querySelector("main h1");
    heading?.focus({ preventScroll: true });
    // On a phone the navigation is wider than the screen: where one is has to be in sight.
    document.querySelector(".sidebar [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [path]);
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the page</a>
    <div class="shell">
      <${Sidebar} pages=${pages} path=${path} />
      <div class="column">
        <${Topbar} />
        <main id="main" tabindex="-1"><${Jobs} />${found
          ? html`<${found.entry.page} key=${path} ...${found.names} />`
          : html`<div class="empty"><h1 tabindex="-1">There is no such page</h1><p><a href=${href("/")}>Go to the overview</a></p></div>`}</main>
      </div>
    </div>
    <${Toasts} /><${Dialogs} />`;
}

/** @param {PageEntry} entry */
const isOffered = (entry) => Boolean(entry.icon) && (!entry.right || can(entry.right));

/** @param {PageEntry[]} pages */
function useShortcuts(pages) {
  useLayoutEffect(() => { // at once: whoever sees the page may press its keys
    const offered = pages.filter(isOffered);
    const undo = [
      addKeys([
        { keys: "Mod+k", words: "Go to or do anything", run: openPalette },
        { keys: "/", words: "Search", run: () => search() },
        { keys: "?", words: "These keys", run: openHelp },
        { keys: "t", words: "Theme: auto, light, dark", run: nextTheme },
        { keys: "l", words: "Hold the screen still, or go on", run: hold },
        ...(can("audit") ? [{ keys: "a", words: "What operators did", run: audit }] : []),
        ...offered.filter(({ key }) => key).map(({ key, title, path }) => ({ keys: `g ${key}`, words: title, group: "Go to", run: () => go(path) })),
      ]),
      offer(() => [
        ...offered.map(({ title, icon, path, key }) => ({ words: title, icon, hint: "page", keys: key && `g ${key}`, run: () => go(path) })),
        ...(can("audit") ? [{ words: "What operators did", icon: "log", keys: "a", run: audit }] : []),
        { words: "Change the theme", icon: "auto", keys: "t", run: nextTheme },
        { words: zone.get() === "utc" ? "Show local times" : "Show times in UTC", icon: "clock", run: nextZone },
        { words: "Show the keyboard shortcuts", icon: "key", keys: "?", run: openHelp },
      ]),
    ];
    return () => undo.forEach((each) => each());
  }, [pages]);
}

/** A page with a search field of its own gets the focus there. */
function search() {
  /** @type {HTMLElement | null} */
  const field = document.querySelector("main [data-search]");
  if (field) field.focus();
  else void openPalette();
}

/** Fetched when it is first asked for: most who look never do. */
const audit = () => void import("./audit.js").then(({ openAudit }) => openAudit(), (error) => complain(error, "open the audit"));

const hold = () => held.update((now) => (now === "yes" ? "no" : "yes"));

/** @param {{pages: PageEntry[], path: string}} props */
function Sidebar({ pages, path }) {
  const room = useStore(standing);
  useStore(session);
  const top = `/${path.split("/")[1]}`;
  return html`<nav class="sidebar" aria-label="Pages">
    <a class="brand" href=${href("/")} aria-label="Postroom, overview"><${Mark} /><span>Postroom</span></a>
    <ul>${pages.filter(isOffered).map((entry) => {
      const n = room && entry.count ? entry.count(room) : 0;
      return html`<li key=${entry.path}><a href=${href(entry.path)} aria-current=${entry.path === top ? "page" : undefined}>
        <${Icon} name=${entry.icon ?? ""} /><span class="nav-words">${entry.title}</span>
        ${n ? html`<span class=${`nav-count${room && entry.alarm?.(room) ? " alarm" : ""}`}>${short(n)}</span>` : null}</a></li>`;
    })}</ul>
    <${Person} />
  </nav>`;
}

const Mark = () => html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M7.4 10.4 16 17.2l8.6-6.8" /><circle cx="24.5" cy="8.5" r="4" /></svg>`;

function Person() {
  const who = useStore(session);
  if (!who || who === "unknown") return null;
  const isNamed = who.name !== "local";
  return html`<div class="person"><span class="avatar" aria-hidden="true">${who.name.slice(0, 1).toUpperCase()}</span>
    <span class="person-words"><b>${who.name}</b><small>${roleName() || "limited"}</small></span>
    ${isNamed ? html`<button class="link" onClick=${() => act(logOut, { doing: "log out" })}>Log out</button>` : null}</div>`;
}

function Topbar() {
  const now = useStore(state);
  const chosen = useStore(theme);
  const isUtc = useStore(zone) === "utc";
  const room = useStore(standing);
  const overdue = total(room, "overdue");
  const words = LIVE[now];
  return html`<header class="topbar">
    <button class="searchbox" onClick=${openPalette}><${Icon} name="search" /><span>Search or jump to…</span><kbd aria-hidden="true">${keyCaps("Mod+k")}</kbd></button>
    <div class="topbar-end">
      ${room ? html`<${Environment} room=${room} />` : null}
      ${room && !room.ok ? html`<span class="badge bad" role="alert">Store unreachable: ${room.error}</span>` : null}
      ${overdue ? html`<a class="badge warn" href=${href("/processing")}>${overdue} overdue</a>` : null}
      <button class=${`live ${now}`} title=${words.title} onClick=${hold} aria-pressed=${now === "paused"}><i class="dot" aria-hidden="true"></i>${words.words}</button>
      ${useCan("audit") ? html`<button class="icon-button" aria-label="What operators did" title="What operators did" onClick=${audit}><${Icon} name="log" /></button>` : null}
      <button class="zone wide-only" aria-label=${`Times: ${isUtc ? "UTC" : "local"}`} title=${isUtc ? "Times are in UTC. Click for your own." : "Times are in your time zone. Click for UTC."} onClick=${nextZone}>${isUtc ? "UTC" : "Local"}</button>
      <button class="icon-button" aria-label=${`Theme: ${chosen}`} title=${`Theme: ${chosen}`} onClick=${nextTheme}>
        <${Icon} name=${chosen === "auto" ? "auto" : chosen === "light" ? "sun" : "moon"} /></button>
    </div></header>`;
}

/** @type {Record<string, string>} */
const COLOURS = { blue: "info", green: "good", amber: "warn", red: "bad" };

/** Which room this is: what its people call it, in the colour that they gave it, and what it is kept in. @param {{room: import("./data.js").Standing}} props */
const Environment = ({ room }) => html`<span class=${`badge environment ${room.environment ? COLOURS[room.environment_colour] ?? "" : "wide-only"}`} title=${`${room.environment || "A room"} on ${room.engine}`}>
  ${room.environment ? html`<b>${room.environment}</b>` : null}<span class="wide-only">${room.engine}</span></span>`;
