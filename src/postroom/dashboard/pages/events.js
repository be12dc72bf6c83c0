/** Events: what happens, as it happens, one line an event, the newest first; topics; and the archives of services. */
import { count, plural } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { lazy } from "../lib/lazy.js";
import { listen } from "../lib/live.js";
import { Badge, Card, Empty, Head, MessageLink, QueueLink, Tabs } from "../lib/parts.js";
import { setQuery, useQuery } from "../lib/router.js";
import { brief } from "../lib/time.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";

/** Lines that are kept, and how often they are drawn (ms): however much happens, the page stays calm. */
const MOST = 500, PACE = 250;
/** @type {Record<string, import("../lib/parts.js").Tone>} */
const TONES = { requeue: "warn", retry: "warn", move_to_dlq: "bad", expire: "bad", evict: "bad", purge: "bad", pause: "warn", replay: "info", resume: "good" };

/** @typedef {{key: string, at: number, queue: string, event: string, count: number, ids: string[], words: string}} Line */

const Topics = lazy(() => import("./topics.js").then((found) => found.Topics));
const Archives = lazy(() => import("./archives.js").then((found) => found.Archives));

export function Events() {
  const [tab, setTab] = useQuery("tab", "live");
  return html`<${Head} title="Events" sub=${tab === "live" ? "What happens in every queue and what operators do, from now on. Hold the screen still with the chip above." : tab === "topics" ? "What was published for everybody who reads." : "What services of events could not handle, kept by each service for itself."}>
      <${Tabs} name="What" value=${tab} set=${(/** @type {string} */ next) => { setQuery({ q: null, service: null, topic: null }); setTab(next); }} options=${[{ value: "live", words: "Live tail" }, { value: "topics", words: "Topics" }, { value: "archives", words: "Archives" }]} /><//>
    ${tab === "live" ? html`<${Live} />` : tab === "topics" ? html`<${Topics} />` : html`<${Archives} />`}`;
}

function Live() {
  const [text, setText] = useQuery("q");
  const { lines, total } = useTail();
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = lines.filter((line) => wanted.every((word) => `${line.event} ${line.queue} ${line.words} ${line.ids.join(" ")}`.toLowerCase().includes(word)));
  return html`<div class="filter"><div class="search-field"><${Icon} name="search" /><input type="search" data-search aria-label="Filter events" placeholder="requeue payments" spellcheck=${false}
      value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} /></div><span class="faint" role="status">${plural(total, "event")} since this page was opened${total > MOST ? `, the last ${count(MOST)} are kept` : ""}</span></div>
    ${shown.length ? html`<${Card} flush><ol class="tail" aria-label="Events">${shown.map((line) => html`<li key=${line.key}>
      <time class="faint" dateTime=${new Date(line.at).toISOString()}>${brief(line.at)}</time><${Badge} tone=${TONES[line.event] ?? "plain"}>${line.event.replaceAll("_", " ")}<//>
      <span class="tail-queue">${line.queue ? html`<${QueueLink} queue=${line.queue} />` : null}</span>
      ${line.queue && line.ids.length === 1 ? html`<${MessageLink} queue=${line.queue} id=${line.ids[0]} />` : html`<span class="muted">${line.words}</span>`}</li>`)}</ol><//>`
      : html`<${Empty} icon="events" title=${lines.length ? "No event is like that" : "Nothing has happened yet"} command=${lines.length ? undefined : "postroom event tail"}>Retries, reclaims, deaths, replays, purges and
        every act of an operator appear here within a quarter of a second.<//>`}`;
}

/** @returns {{lines: Line[], total: number}} What was heard, gathered a few times a second. */
function useTail() {
  const [seen, setSeen] = useState({ lines: /** @type {Line[]} */ ([]), total: 0 });
  const fresh = useRef(/** @type {Line[]} */ ([]));
  useEffect(() => {
    const unlisten = listen(({ name, data }) => {
      if (name === "lifecycle") fresh.current.push({ key: `${data.queue} ${data.id}`, at: data.at, queue: data.queue, event: data.event, count: data.count, ids: data.ids, words: plural(data.count, "message") });
      else if (name === "audit") fresh.current.push(act(data));
      if (fresh.current.length > MOST) fresh.current.shift();
    });
    const timer = setInterval(() => {
      if (!fresh.current.length) return;
      const heard = fresh.current.reverse();
      fresh.current = [];
      setSeen((before) => ({ lines: [...heard, ...before.lines].slice(0, MOST), total: before.total + heard.length }));
    }, PACE);
    return () => {
      unlisten();
      clearInterval(timer);
    };
  }, []);
  return seen;
}

/** An act of an operator. @param {any} told @returns {Line} */
function act(told) {
  const { event, queue, by, count: number } = told.data ?? {};
  return { key: `audit ${told.id}`, at: told.at, queue: queue ?? "", event: event ?? "audit", count: number ?? 0, ids: [], words: `by ${by || "somebody"}` };
}
