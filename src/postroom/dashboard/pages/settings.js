/** Settings: what this server goes by and where each value came from; what operators did; this browser. */
import { useAudit, verb, why } from "../lib/audit.js";
import { standing, useLoaded } from "../lib/data.js";
import { size, span } from "../lib/format.js";
import { Badge, Card, Empty, Failed, Head, QueueLink, Tabs } from "../lib/parts.js";
import { useQuery } from "../lib/router.js";
import { roleName, session, useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Table } from "../lib/table.js";
import { Capabilities, Roles } from "./settings/access.js";
import { Tokens } from "./settings/tokens.js";
import { theme } from "../lib/theme.js";
import { absolute, setZone, When, zone } from "../lib/time.js";
import { html } from "../lib/ui.js";

export function Settings() {
  const [tab, setTab] = useQuery("tab", "room");
  const mayConfig = useCan("config"), mayAudit = useCan("audit"), mayToken = useCan("token");
  const tabs = [
    { value: "room", words: "Room" }, ...(mayConfig ? [{ value: "health", words: "Health" }] : []), ...(mayConfig ? [{ value: "config", words: "Configuration" }] : []),
    ...(mayToken ? [{ value: "tokens", words: "Tokens" }] : []), ...(mayAudit ? [{ value: "audit", words: "Audit" }] : []), { value: "browser", words: "This browser" },
  ];
  return html`<${Head} title="Settings"><${Tabs} name="What" value=${tab} set=${setTab} options=${tabs} /><//>
    ${tab === "health" && mayConfig ? html`<${Health} />` : tab === "config" && mayConfig ? html`<${Configuration} />` : tab === "tokens" && mayToken ? html`<${Tokens} />` : tab === "audit" && mayAudit ? html`<${Audit} />` : tab === "browser" ? html`<${Browser} />` : html`<${Room} />`}`;
}

function Room() {
  const room = useStore(standing);
  if (!room) return html`<p class="loading" role="status">Loading…</p>`;
  return html`<${Card} title="How it stands"><dl class="facts">
    <div><dt>Store</dt><dd>${room.engine} ${room.ok ? html`<${Badge} tone="good" dot>answers in ${room.latency.toFixed(1)} ms<//>` : html`<${Badge} tone="bad" dot>away<//> ${room.error}`}</dd></div>
    <div><dt>Keeper</dt><dd>${room.keeper ? html`<${Badge} tone="good" dot>leads<//> ${room.keeper_name ? html`${room.keeper_name}, ` : "and "}sweeps every ${span(room.sweep_interval)}` : html`<${Badge} tone="bad" dot>none is running<//>`}</dd></div>
    ${room.redis_active === null ? null : html`<div><dt>Spool</dt><dd>${room.redis_active ? "not needed: Redis is there" : `in use, with ${room.spooled} messages`}</dd></div>`}
    ${room.memory_used == null ? null : html`<div><dt>Memory</dt><dd>${size(room.memory_used)}${room.memory_limit ? ` of ${size(room.memory_limit)}` : ", without a limit"}</dd></div>`}
    <div><dt>Server time</dt><dd>${absolute(room.now)}</dd></div></dl><//>`;
}

/** @type {Record<string, import("../lib/parts.js").Tone>} */
const TONES = { ok: "good", warn: "warn", fail: "bad" };

/** What `postroom doctor` says. */
function Health() {
  const { data, error, reload } = useLoaded("doctor", { every: 30_000 });
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  const worst = [...(data ?? [])].sort((a, b) => Object.keys(TONES).indexOf(b.level) - Object.keys(TONES).indexOf(a.level));
  return html`<${Card} flush><${Table} name="Health" rows=${worst} isLoading=${!data} keyOf=${(/** @type {any} */ row) => `${row.check} ${row.text}`} columns=${[
    { id: "level", title: "", label: "How it is", width: "72px", cell: (/** @type {any} */ row) => html`<${Badge} tone=${TONES[row.level] ?? "plain"} dot>${row.level}<//>` },
    { id: "check", title: "Looked at", cell: (/** @type {any} */ row) => html`<strong>${row.check}</strong>` },
    { id: "text", title: "Found", grows: true, cell: (/** @type {any} */ row) => html`<span title=${row.text}>${row.text}</span>` },
    { id: "advice", title: "What to do", wide: true, cell: (/** @type {any} */ row) => html`<span class="muted" title=${row.advice}>${row.advice || "—"}</span>` },
  ]} /><//>`;
}

function Configuration() {
  const { data, error, reload } = useLoaded("config", { every: 60_000 });
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  const tables = [["settings", data.settings], ...Object.entries(data.queues).map(([name, layer]) => [`queue.${name}`, layer]), ...Object.entries(data.roles).map(([name, layer]) => [`role.${name}`, layer])];
  return html`<p class="muted">${data.file ? html`From <code>${data.file}</code>, the environment and options.` : "No file: defaults, the environment and options."}</p>
    ${tables.map(([name, layer]) => html`<${Card} key=${name} title=${name} flush><${Table} name=${`Settings of ${name}`} keyOf=${(/** @type {any} */ row) => row.name}
      rows=${Object.entries(layer).map(([key, setting]) => ({ name: key, .../** @type {any} */ (setting) }))} columns=${[
        { id: "name", title: "Setting", cell: (/** @type {any} */ row) => html`<code>${row.name}</code>` },
        { id: "value", title: "Value", grows: true, cell: (/** @type {any} */ row) => html`<code>${JSON.stringify(row.value)}</code>` },
        { id: "origin", title: "Origin", cell: (/** @type {any} */ row) => html`<${Badge} tone=${row.origin === "default" ? "plain" : "info"}>${row.origin}<//>` },
      ]} /><//>`)}
    <${Card} title="What is redacted"><dl class="facts">${RULES.map(([name, words]) => html`<div key=${name}><dt>${words}</dt><dd>${data.redaction[name].length
      ? data.redaction[name].map((/** @type {string} */ rule, /** @type {number} */ i) => html`${i ? ", " : ""}<code key=${rule}>${rule}</code>`) : html`<span class="faint">none of your own</span>`}</dd></div>`)}</dl>
      <p class="muted">Beside these: numbers of cards, passwords in addresses, private keys, and what stands behind Bearer or Basic. Who works on a message gets it as it is.</p><//>
    <${Capabilities} told=${data.capabilities} />
    <${Roles} rights=${data.access} />`;
}

/** The rules by which values are hidden from those who look. @type {[string, string][]} */
const RULES = [["parts", "Names that hold"], ["whole", "Names that are"], ["names", "Names like (http.redact)"], ["patterns", "Text like (http.redact_patterns)"]];

function Audit() {
  const { data, error, reload } = useAudit();
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  return html`<${Table} name="Audit" fill rows=${data ?? []} isLoading=${!data} columns=${[
    { id: "at", title: "When", width: "110px", cell: (/** @type {any} */ act) => html`<${When} at=${act.at} />` },
    { id: "by", title: "Who", wide: true, cell: (/** @type {any} */ act) => act.by || "—" },
    { id: "event", title: "What", cell: (/** @type {any} */ act) => html`<strong>${verb(act)}</strong>` },
    { id: "queue", title: "Where", cell: (/** @type {any} */ act) => (act.queue ? html`<${QueueLink} queue=${act.queue} />` : "—") },
    { id: "count", title: "How many", align: "end", wide: true, cell: (/** @type {any} */ act) => act.count },
    { id: "info", title: "More", wide: true, grows: true, cell: (/** @type {any} */ act) => html`<span title=${why(act)}>${why(act) || "—"}</span>` },
  ]} empty=${html`<${Empty} icon="log" title="Nobody has done anything yet" command="postroom audit tail">Purges, replays, pauses, notes and every other act of a person are kept here for a year, whatever door they came by.<//>`} />`;
}

function Browser() {
  const who = useStore(session);
  const [look, when] = [useStore(theme), useStore(zone)];
  return html`<${Card} title="This browser"><div class="stack">
    <p>${who && who !== "unknown" ? html`You are <strong>${who.name}</strong>${roleName() ? ` (${roleName()})` : ""}.` : null}</p>
    <label class="field"><span>Theme</span><select class="narrow" value=${look} onChange=${(/** @type {any} */ e) => theme.set(e.target.value)}>
      <option value="auto">As the system</option><option value="light">Light</option><option value="dark">Dark</option></select></label>
    <label class="field"><span>Times</span><select class="narrow" value=${when} onChange=${(/** @type {any} */ e) => setZone(e.target.value)}>
      <option value="local">Your time zone</option><option value="utc">UTC</option></select></label></div><//>`;
}
