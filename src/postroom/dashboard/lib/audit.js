/** What operators did: read on from where the last look ended, for the page of the settings and for the drawer. */
import { get } from "./api.js";
import { useLoaded } from "./data.js";
import { show } from "./dialog.js";
import { plural } from "./format.js";
import { Badge, Empty, Failed, QueueLink } from "./parts.js";
import { href, place } from "./router.js";
import { When } from "./time.js";
import { html, useEffect } from "./ui.js";

/** @typedef {{id: string, at: number, by: string, event: string, queue: string, count: number, info: Record<string, any>}} Act */

/** Pages of the audit that one look takes, acts of a page, and how many of the newest are kept. */
const PAGES = 50, ACTS = 1_000;
/** The audit is a log: what was read stays as it is. */
const known = { cursor: "", acts: /** @type {Act[]} */ ([]) };

/** One look at a time: page and drawer may be open together. @type {Promise<Act[]> | null} */
let reading = null;
const readOn = () => (reading ??= read().finally(() => { reading = null; }));

/** @returns {Promise<Act[]>} The newest first. */
async function read() {
  for (let page = 0; page < PAGES; page += 1) {
    const found = await get("audit", { after: known.cursor, limit: ACTS });
    known.acts = [...known.acts, ...found.acts].slice(-ACTS);
    known.cursor = found.cursor;
    if (found.acts.length < ACTS) break;
  }
  return [...known.acts].reverse();
}

export const useAudit = () => useLoaded("audit", { every: 5_000, when: (event) => event.name === "audit", load: readOn });

/** What was done, in a word. @param {Act} act */
export const verb = (act) => act.event.replaceAll("_", " ");
/** Why, or whatever else is known. @param {Act} act */
export const why = (act) => act.info.reason || Object.entries(act.info).map(([name, value]) => `${name.replaceAll("_", " ")}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");

/** @type {Record<string, import("./parts.js").Tone>} */
const TONES = { purge: "bad", drop: "bad", discard: "bad", raw: "warn", pause: "warn", replay: "info", resume: "good" };
/** Acts in the drawer. */
const MOST = 50;

export const openAudit = () => show({ title: "What operators did", body: Drawer, side: true });

/** @param {{close: () => void}} props */
function Drawer({ close }) {
  const { data, error, reload } = useAudit();
  useEffect(() => place.subscribe(close), []); // a link in it leads away
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  if (!data.length) return html`<${Empty} icon="log" title="Nobody has done anything yet">Purges, replays, pauses and every other act of a person would stand here.<//>`;
  return html`<div class="drawer"><ol class="acts" aria-label="Acts">${data.slice(0, MOST).map((/** @type {Act} */ act) => html`<li key=${act.id}>
      <div class="act-head"><${Badge} tone=${TONES[act.event] ?? "plain"}>${verb(act)}<//>${act.queue ? html`<${QueueLink} queue=${act.queue} />` : null}
        <span class="act-when faint"><${When} at=${act.at} /></span></div>
      <p class="muted">${act.by || "somebody"}${act.count ? html` · ${plural(act.count, "message")}` : null}${why(act) ? html` · <span class="act-why">${why(act)}</span>` : null}</p></li>`)}</ol>
    <p class="drawer-foot"><a class="inline-link" href=${href("/settings", { tab: "audit" })}>The whole audit</a></p></div>`;
}
