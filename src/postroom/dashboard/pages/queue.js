/** One queue: its verdict, what it promises and where that was said, its charts, and its messages by state. */
import { path, post } from "../lib/api.js";
import { retryingOf, useBacklogs } from "../lib/backlog.js";
import { lookAgain, standing, useLoaded } from "../lib/data.js";
import { show } from "../lib/dialog.js";
import { short, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { readJson } from "../lib/json.js";
import { useKeys } from "../lib/keys.js";
import { Badge, Card, Empty, Failed, Head, Menu, MessageLink, Tabs } from "../lib/parts.js";
import { at, go, href, useQuery } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Table } from "../lib/table.js";
import { act } from "../lib/toasts.js";
import { When } from "../lib/time.js";
import { html, useState } from "../lib/ui.js";
import { findingsOf, guardOf } from "../lib/verdict.js";
import { Charts } from "./overview.js";
import { Messages, tabsOf } from "./queue/messages.js";
import { pausing, Promise95, purge, VerdictBadge } from "./queues.js";

/** @param {{queue: string}} props */
export function Queue({ queue }) {
  const room = useStore(standing);
  const where = path`queues/${queue}`;
  const { data: view, error, reload } = useLoaded(where, { every: 5_000, when: (event) => event.data?.queue === queue });
  const sla = useLoaded("sla", { every: 10_000, query: { over: "5m" } });
  const breakers = useLoaded("breakers", { every: 5_000, when: (event) => event.name === "audit" });
  const [tab, setTab] = useQuery("show", "ready");
  const stats = room?.queues.find((each) => each.queue === queue) ?? view?.stats;
  const backlog = useBacklogs([queue], stats ? [stats] : []).get(queue);
  const up = { href: href("/queues"), words: "Queues" };
  if (error && !view) return html`<${Head} title=${queue} up=${up} /><${Card}><${Failed} error=${error} retry=${reload} /><//>`;
  if (!view) return html`<${Head} title=${queue} up=${up} /><p class="loading" role="status">Loading…</p>`;
  const promise = sla.data?.find((/** @type {any} */ each) => each.queue === queue);
  const findings = findingsOf(stats, view, promise, guardOf(breakers.data, queue));
  return html`<${Head} up=${up} title=${html`${queue} <${VerdictBadge} finding=${findings[0]} stats=${stats} />`}
      sub=${findings.length ? findings.map((each) => each.cause).join("; ") : null}><${Actions} queue=${queue} paused=${stats.paused} reload=${reload} /><//>
    <${Figures} stats=${stats} view=${view} promise=${promise} />
    <${Tabs} name="What to show" value=${tab} set=${setTab} options=${[
      ...tabsOf(stats, view.policy, retryingOf(backlog, stats.scheduled)), { value: "charts", words: "Charts" }, { value: "policy", words: "Policy" }, { value: "history", words: "History" }]} />
    ${tab === "charts" ? html`<${QueueCharts} queue=${queue} target=${promise?.target} />`
      : tab === "policy" ? html`<${PolicyCard} policy=${view.policy} origins=${view.origins} />`
      : tab === "history" ? html`<${History} queue=${queue} />`
      : html`<${Messages} key=${tab} queue=${queue} tab=${tab} backlog=${backlog} labels=${view.policy.labels ?? {}} />`}`;
}

/** @param {{queue: string, paused: boolean, reload: () => void}} props */
function Actions({ queue, paused, reload }) {
  const mayPause = useCan("pause"), mayPurge = useCan("purge"), mayPut = useCan("put");
  const pause = pausing(queue, paused, reload);
  useKeys(mayPause ? [{ keys: "p", words: paused ? "Resume this queue" : "Pause this queue", group: "Queue", run: () => pause.run() }] : [], [paused]);
  return html`${mayPut ? html`<button class="button" onClick=${() => show({ title: `Put a message into ${queue}`, body: PutForm, props: { queue } })}><${Icon} name="plus" />Put a message</button>` : null}
    ${mayPause ? html`<button class="button" onClick=${pause.run}><${Icon} name=${pause.icon} />${pause.words}</button>` : null}
    <${Menu} label="More actions" items=${mayPurge ? [{ words: "Purge…", icon: "trash", danger: true, run: () => purge(queue, reload) }] : []} />`;
}

/** @param {{queue: string, close: (value?: any) => void}} props */
function PutForm({ queue, close }) {
  const [body, setBody] = useState('{\n  "hello": "world"\n}');
  const [delay, setDelay] = useState("");
  const [kind, setKind] = useState("");
  const [priority, setPriority] = useState("normal");
  const { value, problem } = readJson(body);
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const message = { body: value, priority: /^\d+$/.test(priority) ? Number(priority) : priority, ...(kind ? { kind } : {}), ...(delay ? { delay } : {}) };
    const put = await act(() => post(path`queues/${queue}/messages`, message), { doing: `put into ${queue}`, done: "It is in the queue." });
    if (put) {
      close();
      lookAgain();
      go(at`/queues/${queue}/messages/${put.id}`);
    }
  };
  /** @param {(value: string) => void} set */
  const typed = (set) => (/** @type {any} */ e) => set(e.target.value);
  return html`<form class="dialog-form" onSubmit=${submit}>
    <label class="field"><span>Body <em>JSON</em></span><textarea autofocus rows="7" spellcheck=${false} value=${body} onInput=${typed(setBody)} aria-invalid=${Boolean(problem)}></textarea></label>
    <p class="bad-words" role="alert">${problem}</p>
    <div class="fields"><label class="field"><span>Kind</span><input value=${kind} onInput=${typed(setKind)} placeholder="none" /></label>
      <label class="field"><span>Priority</span><input value=${priority} onInput=${typed(setPriority)} /></label>
      <label class="field"><span>Delay</span><input value=${delay} onInput=${typed(setDelay)} placeholder="now, or 15m" /></label></div>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${Boolean(problem)}>Put</button></footer></form>`;
}

/** @param {{stats: import("../lib/data.js").QueueStats, view: any, promise: any}} props */
function Figures({ stats, view, promise }) {
  const { policy } = view;
  const items = [
    ["Ready", short(stats.ready), policy.capacity ? `of ${short(policy.capacity)}` : ""],
    ["Processing", short(stats.processing), stats.overdue ? `${short(stats.overdue)} overdue` : policy.max_in_flight ? `of ${short(policy.max_in_flight)}` : ""],
    ["Scheduled", short(stats.scheduled), ""], ["Dead", short(stats.dead), ""],
    ["Oldest", stats.oldest ? span(stats.oldest) : "—", ""],
    ["p95 wait", html`<${Promise95} sla=${promise} />`, promise?.within != null ? `${(100 * promise.within).toFixed(1)} % in time` : ""],
  ];
  return html`<dl class="figures">${items.map(([words, value, note]) => html`<div key=${words}><dt>${words}</dt><dd>${value}${note ? html` <small>${note}</small>` : null}</dd></div>`)}</dl>`;
}

/** @param {{queue: string, target: number | null | undefined}} props */
function QueueCharts({ queue, target }) {
  const samples = useLoaded("samples", { every: 10_000, query: { queue, over: "1h" } });
  if (samples.error) return html`<${Card}><${Failed} error=${samples.error} retry=${samples.reload} /><//>`;
  return html`<${Charts} samples=${samples.data} target=${target} queue=${queue} />`;
}

/** The settings, in the order in which people ask for them. @type {[string, [string, string][]][]} */
const SETTINGS = [
  ["Work", [["lease", "A silent worker is taken for dead after"], ["ack_timeout", "Work may take"], ["max_in_flight", "At once, at most"], ["rate", "Claims, at most"], ["suspect_after", "A suspect after so many runs that ended in silence"]]],
  ["Failure", [["max_attempts", "Attempts"], ["backoff", "Next attempt after"], ["backoff_cap", "but at most after"], ["jitter", "with jitter"], ["dead_letter", "Dead letters show in"], ["dead_retention", "and are kept for"], ["dead_limit", "at most"], ["on_dead", "When one dies"]]],
  ["Waiting", [["sla_p95", "95 % wait at most"], ["capacity", "May wait, at most"], ["warn_depth", "Warn at"], ["aging", "One level of priority is worth"], ["labels", "Priorities by name"], ["put_rate", "Puts, at most"], ["on_expire", "What expires is"], ["dedupe_window", "An id is remembered for"], ["keep_done", "What is done is kept for"]]],
];

/** @param {{policy: Record<string, any>, origins: Record<string, string>}} props */
const PolicyCard = ({ policy, origins }) => html`<div class="grid">${SETTINGS.map(([title, settings]) => html`<${Card} key=${title} title=${title}><dl class="settings">
  ${settings.filter(([name]) => name in policy).map(([name, words]) => html`<div key=${name}><dt title=${name}>${words}</dt><dd><b>${said(name, policy[name])}</b>
    <${Badge} tone=${origins[name] === "default" ? "plain" : "info"} title=${`${name} was given by: ${origins[name]}`}>${origins[name] ?? "—"}<//></dd></div>`)}
  ${title === "Failure" ? html`<div><dt>So it is tried again after</dt><dd><b>${steps(policy)}</b></dd></div>` : null}</dl><//>`)}</div>`;

/** What is off, in words that fit. @type {Record<string, string>} */
const OFF = {
  max_in_flight: "no limit", rate: "no limit", put_rate: "no limit", capacity: "no limit", warn_depth: "never", sla_p95: "no promise",
  aging: "nothing: strict", dead_retention: "for ever", on_dead: "nothing more", ack_timeout: "as long as it likes", keep_done: "not at all", dedupe_window: "not at all",
};

/** @param {string} name @param {any} value */
function said(name, value) {
  if (value === null || value === undefined || value === "0s") return OFF[name] ?? "off";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return Object.entries(value).map(([name, each]) => `${name} ${each}`).join(", ");
  return typeof value === "number" ? short(value) : String(value);
}

/** The first waits, as "2^n * 5s" makes them. @param {Record<string, any>} policy */
function steps(policy) {
  const found = /^(?:(\d+)\^n \* )?(.+)$/.exec(String(policy.backoff ?? ""));
  const most = Math.max(0, Math.min((policy.max_attempts ?? 1) - 1, 5));
  if (!found || !most) return "never";
  const base = milliseconds(found[2]), cap = milliseconds(String(policy.backoff_cap ?? ""));
  if (base == null) return policy.backoff;
  const waits = Array.from({ length: most }, (_, n) => span(Math.min(base * Number(found[1] ?? 1) ** n, cap ?? Infinity)));
  // A number and its unit stay on one line.
  return `${waits.map((wait) => wait.replaceAll(" ", "\u00a0")).join(", ")}${policy.max_attempts - 1 > most ? ", …" : ""}`;
}

/** @param {string} text "1m30s" */
function milliseconds(text) {
  const sizes = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  return parts.length && parts.map((part) => part[0]).join("") === text ? parts.reduce((sum, part) => sum + Number(part[1]) * sizes[/** @type {"s"} */ (part[2])], 0) : null;
}

/** @param {{queue: string}} props */
function History({ queue }) {
  const { data, error, reload } = useLoaded(path`queues/${queue}/history`, { every: 5_000, query: { limit: 1_000 }, when: (event) => event.data?.queue === queue });
  if (error && !data) return html`<${Card}><${Failed} error=${error} retry=${reload} /><//>`;
  const rows = [...(data?.entries ?? [])].reverse();
  return html`<${Table} fill name=${`History of ${queue}`} rows=${rows} isLoading=${!data} columns=${[
    { id: "at", title: "When", width: "130px", cell: (/** @type {any} */ row) => html`<${When} at=${row.at} />` },
    { id: "event", title: "What", cell: (/** @type {any} */ row) => html`<${Badge} tone=${row.event === "move_to_dlq" ? "bad" : row.event === "requeue" || row.event === "retry" ? "warn" : "plain"}>${row.event.replaceAll("_", " ")}<//>` },
    { id: "count", title: "Messages", align: /** @type {const} */ ("end"), cell: (/** @type {any} */ row) => short(row.count) },
    { id: "ids", title: "Which", wide: true, cell: (/** @type {any} */ row) => row.ids.slice(0, 3).map((/** @type {string} */ id) => html`<${MessageLink} key=${id} queue=${queue} id=${id} /> `) },
    { id: "info", title: "Why", wide: true, cell: (/** @type {any} */ row) => html`<span class="muted">${Object.entries(row.info).map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`).join(", ")}</span>` },
  ]} empty=${html`<${Card}><${Empty} icon="clock" title="Nothing has happened yet">Retries, reclaims, deaths and what operators do would stand here. A message that simply succeeds leaves no line.<//><//>`} />`;
}
