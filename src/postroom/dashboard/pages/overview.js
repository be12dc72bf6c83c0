/** Overview: is everything well, and if not, where and why; then the numbers. */
import { post } from "../lib/api.js";
import { Bars, Chart, Day, MARKS, Sparkline } from "../lib/chart.js";
import { now } from "../lib/clock.js";
import { standing, total, useLoaded } from "../lib/data.js";
import { show } from "../lib/dialog.js";
import { count, mark, plural, rate, short, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { Card, Empty, Head, Tabs } from "../lib/parts.js";
import { href, useQuery, useRange } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { brief, When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html, useState } from "../lib/ui.js";
import { findingsOf, findingsOfRoom, guardOf } from "../lib/verdict.js";
import { QueueTable } from "./queues.js";

/** Findings that are listed; more are counted. */
const MOST = 6;
const HOUR = 3_600_000;

export function Overview() {
  const room = useStore(standing);
  const queues = useLoaded("queues", { every: 10_000, when: (event) => event.name === "lifecycle" });
  const sla = useLoaded("sla", { every: 10_000, query: { over: "5m" } });
  const breakers = useLoaded("breakers", { every: 10_000 });
  const samples = useLoaded("samples", { every: 10_000, query: { over: "1h" } });
  const soon = useLoaded("upcoming", { every: 10_000, query: { over: "10m", bars: 20 } });
  const trends = useLoaded("samples/queues", { every: 60_000 });
  const day = useLoaded("samples", { every: 60_000, query: { over: "1d" } });
  const groups = useLoaded("dead/-/groups", { every: 15_000, query: { limit: 5 }, when: (event) => event.name === "move_to_dlq" });
  if (!room) return html`<${Head} title="Overview" /><p class="loading" role="status">Loading…</p>`;
  if (!room.queues.length) return html`<${Head} title="Overview" /><${Card}><${Empty} icon="queues" title="No queue yet" command=${`postroom message put emails '{"hello": "world"}'`}>
    A queue comes into being with its first message, or when a worker or a configuration declares it. Then this page tells how it is.<//><//>`;
  const died = sum(samples.data?.rates.dead ?? [], samples.data?.at ?? []);
  const findings = [
    ...findingsOfRoom(room, breakers.data ?? {}, died),
    ...room.queues.flatMap((stats) => findingsOf(stats, by(queues.data?.queues, stats.queue), by(sla.data, stats.queue), guardOf(breakers.data, stats.queue)).filter((each) => each.tone !== "plain").slice(0, 1)),
  ].sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
  return html`<${Head} title="Overview" sub=${`${plural(room.queues.length, "queue")} on ${room.engine}`} />
    <${Verdict} findings=${findings} />
    <${Tiles} room=${room} samples=${samples.data} soon=${soon.data} day=${day.data} />
    <${Charts} samples=${samples.data} />
    <${Card} flush title="Queues" actions=${html`<a class="inline-link" href=${href("/queues")}>All queues</a>`}>
      <${QueueTable} stats=${worstFirst(room.queues)} views=${queues.data?.queues} sla=${sla.data} trends=${trends.data?.done} breakers=${breakers.data} /><//>
    ${groups.data?.groups.length ? html`<${Failures} groups=${groups.data.groups} />` : null}`;
}

/** @template {{queue: string}} T @param {T[] | undefined} list @param {string} queue */
const by = (list, queue) => list?.find((each) => each.queue === queue);

/** How many that were in all; samples need not be equally far apart. @param {(number | null)[]} rates @param {number[]} at */
const sum = (rates, at) => Math.round(rates.reduce((/** @type {number} */ all, each, i) => all + (each ?? 0) * ((at[i] - (at[i - 1] ?? at[i])) / 1_000), 0));

/** @param {import("../lib/data.js").QueueStats[]} queues The ten that have most to tell. */
const worstFirst = (queues) => [...queues].sort((a, b) => score(b) - score(a)).slice(0, 10);
/** @param {import("../lib/data.js").QueueStats} q */
const score = (q) => q.overdue * 1e6 + q.oldest + q.dead * 10 + q.ready + q.processing;

/** @param {{findings: import("../lib/verdict.js").Finding[]}} props */
function Verdict({ findings }) {
  const bad = findings.some((each) => each.tone === "bad");
  const tone = bad ? "bad" : findings.length ? "warn" : "good";
  const queues = new Set(findings.map((each) => each.queue).filter(Boolean)).size;
  const [n, what] = findings.every((each) => each.queue) ? [queues, "queue"] : [findings.length, "thing"];
  const words = findings.length ? `${plural(n, what)} need${n === 1 ? "s" : ""} attention` : "Healthy";
  return html`<section class=${`verdict ${tone}`} aria-label="Verdict" aria-live="polite">
    <div class="verdict-head"><span class="verdict-icon"><${Icon} name=${findings.length ? "alert" : "check"} /></span>
      <h2>${words}</h2>${findings.length ? null : html`<p>Nothing is overdue, late, stalled, paused or full, and a keeper watches.</p>`}</div>
    ${findings.length ? html`<ul>${findings.slice(0, MOST).map((each) => html`<li key=${each.href + each.cause}>
      <a href=${each.href}><span class=${`verdict-word ${each.tone}`}>${each.word}</span><span>${each.queue ? html`<b>${each.queue}</b>: ` : null}${each.cause}</span><${Icon} name="chevron" /></a></li>`)}</ul>` : null}
    ${findings.length > MOST ? html`<p class="verdict-more">and ${plural(findings.length - MOST, "more", "more")} — <a href=${href("/queues")}>see all queues</a></p>` : null}
  </section>`;
}

/** @param {{room: import("../lib/data.js").Standing, samples: any, soon: any, day: any}} props */
function Tiles({ room, samples, soon, day }) {
  const kept = samples?.standing ?? {}, rates = samples?.rates ?? {};
  const oldest = Math.max(0, ...room.queues.map((queue) => queue.oldest));
  const overdue = total(room, "overdue"), dead = total(room, "dead");
  // By the hour, and so from up to an hour after a day ago; a room that is younger says how far it reaches.
  const [before, since] = [day?.standing.dead[0] ?? kept.dead?.[0] ?? dead, room.now - (day?.at[0] ?? samples?.at[0] ?? room.now)];
  const reach = since > 22 * HOUR ? "24 h" : span(Math.ceil(since / 60_000) * 60_000);
  const done = last(rates.acked), failed = (last(rates.retried) ?? 0) + (last(rates.dead) ?? 0);
  const share = done == null || done + failed === 0 ? 0 : (100 * failed) / (done + failed);
  return html`<div class="tiles">
    <${Tile} words="Ready" value=${short(total(room, "ready"))} values=${kept.ready} href=${href("/queues")} />
    <${Tile} words="Oldest ready" value=${oldest ? span(oldest) : "—"} values=${kept.oldest} tone="warn" />
    <${Tile} words="Processing" value=${short(total(room, "processing"))} values=${kept.processing} note=${overdue ? `${count(overdue)} overdue` : ""} bad=${overdue > 0} href=${href("/processing")} />
    <${Coming} soon=${soon} scheduled=${total(room, "scheduled")} />
    <${Tile} words="Dead letters" value=${short(dead)} values=${kept.dead} tone="bad" note=${dead > before ? `+${short(dead - before)} in ${reach}` : ""} bad=${dead > before} href=${href("/dead")} />
    <${Tile} words="Throughput" value=${done == null ? "—" : rate(done)} values=${rates.acked} tone="good" note=${share ? `${share < 1 ? share.toFixed(1) : Math.round(share)} % fail` : ""} bad=${share >= 5} />
  </div>`;
}

/** What comes: the only number that looks ahead, and so do its bars. @param {{soon: any, scheduled: number}} props */
function Coming({ soon, scheduled }) {
  const number = soon ? soon.overdue + soon.counts.reduce((/** @type {number} */ sum, /** @type {number} */ each) => sum + each, 0) : null;
  const words = "Due within 10 min";
  return html`<a class="tile" href=${href("/scheduled", { ahead: "10m" })}><span class="tile-words">${words}</span>
    <span class="tile-value">${number == null ? "—" : `${short(number)}${soon.whole ? "" : "+"}`}${number != null && scheduled > number ? html`<small>of ${short(scheduled)} scheduled</small>` : null}</span>
    <${Bars} values=${soon?.counts ?? []} words=${number ? "when they are due, from now to in ten minutes" : ""} /></a>`;
}

/** @param {(number | null)[] | undefined} values */
const last = (values) => values?.findLast((value) => value != null) ?? null;

/** @param {{words: string, value: string, values?: (number | null)[], note?: string, bad?: boolean, tone?: string, href?: string}} props */
function Tile({ words, value, values = [], note = "", bad = false, tone = "accent", href: to }) {
  const inner = html`<span class="tile-words">${words}</span><span class="tile-value">${value}${note ? html`<small class=${bad ? "bad" : ""}>${note}</small>` : null}</span>
    <${Sparkline} values=${values} tone=${tone} />`;
  return to ? html`<a class="tile" href=${to}>${inner}</a>` : html`<div class="tile">${inner}</div>`;
}

/** How far back charts reach: what the address says, in words, and in ms. @type {Record<string, [string, number]>} */
const SPANS = { "10m": ["10 min", HOUR / 6], "1h": ["1 hour", HOUR], "12h": ["12 hours", 12 * HOUR], "30d": ["30 days", 720 * HOUR] };

/** @param {{samples: any, target?: number | null, queue?: string}} props samples: of the last hour */
export function Charts({ samples: hour, target = null, queue = "" }) {
  const [over, setOver] = useQuery("over", "1h");
  const [range, setRange] = useRange("range");
  const [words, reach] = SPANS[over] ?? SPANS["1h"];
  const longer = useLoaded(reach > HOUR ? "samples" : null, { every: 60_000, query: { queue: queue || null, over } });
  const samples = reach > HOUR ? longer.data : hour;
  const marks = useLoaded("marks", { every: 15_000, query: { over }, when: (event) => event.name === "audit" });
  const choice = html`<${Tabs} name="How far back" value=${over} set=${(/** @type {string} */ next) => { setRange(null); setOver(next); }} options=${Object.entries(SPANS).map(([value, [each]]) => ({ value, words: each }))} />`;
  return html`<section class="charts" aria-label="Charts"><div class="row">${choice}${range ? html`<${Selected} range=${range} queue=${queue} clear=${() => setRange(null)} />`
    : html`<span class="faint hint">Draw over a chart to look at a part of it.</span>`}</div>
    <${Drawn} samples=${samples} words=${`last ${words.replace(/^1 /, "")}`} reach=${reach} range=${range} brush=${setRange} target=${target} marks=${marks.data?.marks ?? []} />
    <${Happened} marks=${marks.data?.marks ?? []} range=${range} reload=${marks.reload} /></section>`;
}

/** The range that was drawn, and where else to look at it. @param {{range: import("../lib/router.js").Range, queue: string, clear: () => void}} props */
const Selected = ({ range, queue, clear }) => html`<span class="selection-bar" role="status"><span>${brief(range.from)} – ${brief(range.to)} <span class="muted">(${span(range.to - range.from)})</span></span>
  <a class="button small" href=${href("/dead", { q: `${queue ? `queue:${queue} ` : ""}since:${new Date(range.from).toISOString()} until:${new Date(range.to).toISOString()}` })}>What died then</a>
  <button class="button small" onClick=${clear}>Show all</button></span>`;

/** @param {{samples: any, words: string, reach: number, range: import("../lib/router.js").Range | null, brush: (range: import("../lib/router.js").Range) => void, target: number | null, marks: import("../lib/chart.js").Mark[]}} props */
function Drawn({ samples, words, reach, range, brush, target, marks }) {
  if (!samples) return null;
  if (samples.at.length < 2) return html`<${Card}><p class="muted">Charts begin as soon as a keeper has taken two samples: one every ten seconds.</p><//>`;
  const { at, rates, standing: kept, waits } = samples;
  return html`<div class="grid">
    <${Card} title="Messages a second" actions=${range ? "selected" : words}>
      <${Chart} name="Messages a second" times=${at} over=${reach} range=${range} brush=${brush} marks=${marks} text=${rate} lines=${[
        { words: "put", tone: "accent", values: rates.put }, { words: "done", tone: "good", values: rates.acked, fill: true },
        { words: "failed", tone: "bad", values: rates.retried.map((/** @type {number | null} */ each, /** @type {number} */ i) => (each == null ? null : each + (rates.dead[i] ?? 0))) }]} /><//>
    <${Card} title="Waiting" actions=${`${range ? "selected" : words}, log axis`}>
      <${Chart} name="How long messages wait" times=${at} over=${reach} range=${range} brush=${brush} marks=${marks} text=${span} mark=${mark} log target=${target} lines=${[
        { words: "oldest ready", tone: "warn", values: kept.oldest, fill: true }, ...waited(at, waits)]} /><//></div>`;
}

/** What happened, in words: the newest first; the charts show where. @param {{marks: import("../lib/chart.js").Mark[], range: import("../lib/router.js").Range | null, reload: () => void}} props */
function Happened({ marks, range, reload }) {
  const may = useCan("note");
  const shown = marks.filter((mark) => !range || (mark.at >= range.from && mark.at < range.to)).reverse();
  if (!shown.length && !may) return null;
  const add = () => show({ title: "Mark this moment", body: MarkForm }).then((text) => text && act(() => post("marks", { text }), { doing: "mark it", done: "It is on the charts." }).then(reload));
  return html`<div class="happened"><ol aria-label="What happened">${shown.slice(0, LISTED).map((mark) => html`<li key=${`${mark.at} ${mark.text}`}>
      <i style=${{ color: `var(--${MARKS[mark.cause] ?? "text-faint"})` }} aria-hidden="true"></i>${mark.group ? html`<a href=${href("/dead", { q: `group:${mark.group}` })}>${mark.text}</a>` : html`<b>${mark.text}</b>`}
      <span class="faint">${mark.by ? `${mark.by}, ` : ""}<${When} at=${mark.at} /></span></li>`)}
      ${shown.length > LISTED ? html`<li class="faint">and ${count(shown.length - LISTED)} before</li>` : null}</ol>
    ${may ? html`<button class="button small" onClick=${add}><${Icon} name="plus" />Mark…</button>` : null}</div>`;
}

/** Marks that are listed; more are counted. */
const LISTED = 4;

/** @param {{close: (text?: string) => void}} props */
function MarkForm({ close }) {
  const [text, setText] = useState("");
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); if (text.trim()) close(text.trim()); }}>
    <p class="muted">Everybody sees it on the charts, for 30 days. A deployment does the same by <code>postroom mark add "deploy 1.2"</code>.</p>
    <label class="field"><span>What happens now</span><input autofocus maxlength="120" placeholder="deploy 1.2" value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!text.trim()}>Mark</button></footer></form>`;
}

/** The percentiles are by the minute, the samples every ten seconds: each minute's value where its samples are. @param {number[]} times @param {{at: number, p50: number | null, p95: number | null}[]} waits */
function waited(times, waits) {
  if (!waits?.length) return [];
  const minutes = new Map(waits.map((wait) => [Math.floor(wait.at / 60_000), wait]));
  /** @param {"p50" | "p95"} name */
  const line = (name) => times.map((time) => minutes.get(Math.floor(time / 60_000))?.[name] ?? null);
  // The newest minute is not over: what it tells so far is dashed.
  const newest = Math.max(...minutes.keys());
  const p95 = line("p95"), begun = times.findIndex((time) => Math.floor(time / 60_000) >= newest);
  const isOpen = begun >= 0 && newest >= Math.floor(now() / 60_000);
  return [{ words: "p95 wait", tone: "accent", values: isOpen ? p95.map((value, i) => (i < begun ? value : null)) : p95 },
    ...(isOpen ? [{ words: "this minute", tone: "accent", values: p95.map((value, i) => (i >= begun - 1 ? value : null)), dash: true }] : []), { words: "p50", tone: "text-faint", values: line("p50"), dash: true }];
}

/** @param {{groups: any[]}} props */
const Failures = ({ groups }) => html`<${Card} flush title="What fails" actions=${html`<a class="inline-link" href=${href("/dead")}>All dead letters</a>`}>
  <ul class="failures">${groups.map((group) => html`<li key=${group.group}><a href=${href("/dead", { q: `group:${group.group}` })}>
    <span class="failure-count">${short(group.count)}</span>
    <span class="failure-words"><b>${group.exception || "Unknown"}</b><span class="muted">${group.task_name || Object.keys(group.queues).join(", ")}${group.incident?.cause && group.incident.status !== "resolved" ? html` · <em>${group.incident.cause}</em>` : null}</span></span>
    <${Day} values=${group.day} />
    ${group.incident ? html`<span class=${`badge ${group.incident.status === "resolved" ? "good" : "warn"}`} title=${[group.incident.cause, group.incident.fix].filter(Boolean).join(" — ") || "Somebody has noted something"}>${group.incident.reopened ? "open again" : group.incident.status}${group.incident.author ? `, ${group.incident.author}` : ""}</span>` : null}
    ${group.classification ? html`<span class="badge plain">${String(group.classification).replaceAll("_", " ")}</span>` : null}
    <span class="faint"><${When} at=${group.last} /></span></a></li>`)}</ul><//>`;
