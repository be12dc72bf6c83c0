/** Breakers: which neighbours are down, since when, by whose word, and how it was within a day. */
import { path, post } from "../lib/api.js";
import { Countdown, now } from "../lib/clock.js";
import { useLoaded } from "../lib/data.js";
import { confirm, show } from "../lib/dialog.js";
import { count, plural, span } from "../lib/format.js";
import { Badge, Card, Empty, Failed, Head, QueueLink } from "../lib/parts.js";
import { useCan } from "../lib/session.js";
import { Table } from "../lib/table.js";
import { brief, When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html, useState } from "../lib/ui.js";

/** @type {Record<string, import("../lib/parts.js").Tone>} */
const TONES = { closed: "good", half_open: "warn", open: "bad" };

export function Breakers() {
  const { data, error, reload } = useLoaded("breakers", { every: 3_000, when: (event) => event.name === "audit" });
  const past = useLoaded("breakers/history", { every: 10_000, when: (event) => event.name === "audit" });
  const may = useCan("breaker");
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  const rows = Object.entries(data ?? {}).map(([name, standing]) => ({ name, .../** @type {any} */ (standing) }));
  /** @param {string} name @param {"open" | "close"} verb */
  const set = async (name, verb) => {
    const asked = verb === "open" ? await show({ title: `Open ${name}`, body: Open, props: { name } })
      : await confirm({ title: `Close ${name}`, reason: true, verb: "Close it", scope: `Work that depends on ${name} goes on, and its failures are forgotten.` });
    if (!asked) return;
    await act(() => post(path`breakers/${name}` + `/${verb}`, asked), { doing: `${verb} ${name}`, done: verb === "open" ? `${name} is open.` : `${name} is closed.` });
    reload();
  };
  return html`<${Head} title="Breakers" sub="Queues that depend on an open breaker wait, instead of using up attempts." />
    <${Card} flush><${Table} name="Breakers" rows=${rows} isLoading=${!data} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
      { id: "name", title: "Breaker", cell: (/** @type {any} */ row) => html`<strong>${row.name}</strong>` },
      { id: "state", title: "State", cell: (/** @type {any} */ row) => html`<${Badge} tone=${TONES[row.state] ?? "plain"} dot>${row.state.replace("_", " ")}<//>${row.forced ? html` <${Badge}>by hand<//>` : null}` },
      { id: "day", title: "Last 24 hours", wide: true, cell: (/** @type {any} */ row) => html`<${Day} state=${row.state} changes=${(past.data?.changes ?? []).filter((/** @type {Change} */ each) => each.name === row.name)} />` },
      { id: "calls", title: "Last calls", wide: true, cell: (/** @type {any} */ row) => html`<${Calls} calls=${row.calls ?? []} />` },
      { id: "failures", title: "Failures", align: "end", wide: true, cell: (/** @type {any} */ row) => html`${row.failures.length}${row.threshold ? html`<span class="faint"> of ${row.threshold}</span>` : null}` },
      { id: "held", title: "Holds back", wide: true, cell: (/** @type {any} */ row) => html`<${Held} row=${row} />` },
      { id: "since", title: "Since", wide: true, align: "end", cell: (/** @type {any} */ row) => html`<${When} at=${row.since || null} />` },
      { id: "until", title: "Tried again in", wide: true, align: "end", cell: (/** @type {any} */ row) => (row.state === "open" && row.until ? html`<${Countdown} deadline=${row.until} over=${row.forced ? "now" : "next call"} />` : row.forced ? html`<span class="faint">by hand</span>` : "—") },
      { id: "reason", title: "Reason", wide: true, grows: true, cell: (/** @type {any} */ row) => html`<span title=${row.reason}>${row.reason || "—"}</span>` },
      ...(may ? [{ id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ row) => (row.state === "closed"
        ? html`<button class="button small" aria-label=${`Open ${row.name}`} onClick=${() => set(row.name, "open")}>Open…</button>`
        : html`<button class="button small" aria-label=${`Close ${row.name}`} onClick=${() => set(row.name, "close")}>Close…</button>`) }] : []),
    ]} empty=${html`<${Empty} icon="breakers" title="No shared breaker yet" command="postroom breaker ls">Breaker("bank", room=room) around calls to a neighbour shows here how it stands, for all processes.<//>`} /><//>
    ${past.data?.changes.length ? html`<${Card} flush title="What happened" actions="newest first, within a day"><ol class="tail dated" aria-label="Changes of breakers">${[...past.data.changes].sort((a, b) => b.at - a.at).slice(0, SHOWN).map((/** @type {Change} */ each) => html`<li key=${`${each.name} ${each.at} ${each.after}`}>
      <time class="faint" dateTime=${new Date(each.at).toISOString()}>${brief(each.at)}</time><${Badge} tone=${TONES[each.after] ?? "plain"}>${each.after.replace("_", " ")}<//>
      <strong>${each.name}</strong><span class="muted">${each.reason}</span></li>`)}</ol><//>` : null}`;
}

/** What waits for a breaker, and in which queues: those that workers have tied to it. @param {{row: any}} props */
const Held = ({ row }) => (row.queues.length ? html`<b title=${`${plural(row.held, "message")} of ${row.queues.join(", ")}`} class=${row.held ? "" : "faint"}>${count(row.held)}</b>${" "}<span class="faint">of ${row.queues.slice(0, FEW).map((/** @type {string} */ queue, /** @type {number} */ i) => html`${i ? ", " : ""}<${QueueLink} queue=${queue} />`)}${row.queues.length > FEW ? ` and ${row.queues.length - FEW} more` : ""}</span>`
  : html`<span class="faint" title="No worker has told that a queue of its own waits for it: Worker(room, …, breakers={queue: breaker})">no queue</span>`);
const FEW = 2;

/** For how long a breaker is opened by hand. @type {[string, string][]} */
const SPANS = [["", "until somebody closes it"], ["10m", "10 minutes"], ["30m", "30 minutes"], ["1h", "an hour"], ["4h", "4 hours"], ["1d", "a day"]];

/** @param {{name: string, close: (said?: {reason: string, expires?: string}) => void}} props */
function Open({ name, close }) {
  const [reason, setReason] = useState("");
  const [expires, setExpires] = useState("");
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); close({ reason, ...(expires ? { expires } : {}) }); }}>
    <p class="scope">Work that depends on ${name} waits.</p>
    <label class="field"><span>For how long</span><select value=${expires} onChange=${(/** @type {any} */ e) => setExpires(e.target.value)}>${SPANS.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>
    <label class="field"><span>Reason <em>optional, others will read it</em></span><input autofocus value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} maxlength="200" /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button danger">Open it</button></footer></form>`;
}

/** @type {Record<string, string>} */
const OUTCOMES = { ok: "good", failure: "bad", refused: "plain" };
const CALLS = 20;

/**
 * The last calls before the breaker changed, from left to right: what processes told with that change.
 * @param {{calls: {at: number, outcome: string, text?: string}[]}} props
 */
function Calls({ calls }) {
  if (!calls.length) return html`<span class="faint">none told</span>`;
  const many = (/** @type {string} */ outcome) => calls.filter((each) => each.outcome === outcome).length;
  const words = `${many("ok")} went well, ${many("failure")} failed, ${many("refused")} refused; the last ${brief(calls[calls.length - 1].at)}`;
  return html`<span class="calls" role="img" aria-label=${words}>${Array.from({ length: CALLS - calls.length }, (_, i) => html`<i key=${i} class="none"></i>`)}${calls.map((each) => html`<i key=${each.at} class=${OUTCOMES[each.outcome] ?? "plain"}
    title=${`${brief(each.at)} ${each.outcome}${each.text ? `: ${each.text}` : ""}`}></i>`)}</span>`;
}

/** @typedef {{name: string, before: string, after: string, at: number, reason: string}} Change */
const DAY = 86_400_000, SHOWN = 50;

/** The states of a day as one strip, from left to right. @param {{state: string, changes: Change[]}} props */
function Day({ state, changes }) {
  const end = now(), begin = end - DAY;
  const seen = changes.filter((each) => each.at > begin).sort((a, b) => a.at - b.at);
  const marks = [{ at: begin, state: seen[0]?.before ?? state }, ...seen.map((each) => ({ at: each.at, state: each.after }))];
  const parts = marks.map((each, i) => ({ state: each.state, for: Math.max(0, (marks[i + 1]?.at ?? end) - each.at) }));
  const open = parts.filter((each) => each.state === "open"), away = open.reduce((sum, each) => sum + each.for, 0);
  const words = open.length ? `open ${plural(open.length, "time")}, ${span(away)} in all` : "never open";
  return html`<span class="day" role="img" aria-label=${words} title=${words}>${parts.map((part, i) => html`<i key=${i} class=${TONES[part.state] ?? "plain"} style=${{ flexGrow: part.for / DAY }}></i>`)}</span>`;
}
