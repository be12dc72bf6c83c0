/** One message: where it stands, how it came there, what it carries, and what can be done with it now. */
import { BASE, get, path, post } from "../lib/api.js";
import { Countdown } from "../lib/clock.js";
import { lookAgain, standing, useLoaded } from "../lib/data.js";
import { confirm, show } from "../lib/dialog.js";
import { plural, size, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { Json, jsonText } from "../lib/json.js";
import { useKeys } from "../lib/keys.js";
import { Badge, Card, Copy, Empty, Failed, Head, MessageLink, QueueLink, StateBadge, Tabs } from "../lib/parts.js";
import { remember } from "../lib/palette.js";
import { at, go, href, useQuery } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { act } from "../lib/toasts.js";
import { Traceback } from "../lib/traceback.js";
import { absolute, When } from "../lib/time.js";
import { timelineOf } from "../lib/timeline.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { guardOf, holdup } from "../lib/verdict.js";
import { discardOne } from "./dead/bulk.js";
import { SameKind } from "./message/kind.js";

/** @param {{queue: string, id: string}} props */
export function Message({ queue, id }) {
  const where = path`queues/${queue}/messages/${id}`;
  /** @param {import("../lib/live.js").Event} event */
  const isAbout = (event) => event.data?.queue === queue && (!event.data.ids || event.data.ids.includes(id) || event.data.count > event.data.ids.length);
  const { data: message, error, reload } = useLoaded(where, { every: 3_000, when: isAbout });
  const history = useLoaded(message ? `${where}/history` : null, { every: 10_000, when: isAbout });
  const policy = useLoaded(path`queues/${queue}`, { every: 60_000 });
  const origin = useOrigin(where);
  const breakers = useLoaded("breakers", { every: 5_000, when: (event) => event.name === "audit" });
  const room = useStore(standing);
  const [tab, setTab] = useQuery("tab", "body");
  const mayRaw = useCan("raw");
  useEffect(() => remember(queue, id), [queue, id]);
  const up = { href: href(at`/queues/${queue}`), words: queue };
  if (error && (!message || error.status === 404)) return html`<${Head} title="Message" up=${up} sub=${id} /><${Card}>${error.status === 404
    ? html`<${Empty} icon="message" title="This message is not here any more">It was done, cancelled or discarded, or never was in ${queue}. What succeeded is not kept unless its queue says keep_done.<//>`
    : html`<${Failed} error=${error} retry=${reload} />`}<//>`;
  if (!message) return html`<${Head} title="Message" up=${up} sub=${id} /><p class="loading" role="status">Loading…</p>`;
  const again = () => { reload(); history.reload(); lookAgain(); };
  const most = message.max_attempts ?? policy.data?.policy.max_attempts;
  return html`<${Head} up=${up} title=${html`${message.task_name || message.kind || "Message"} <${StateBadge} state=${message.state} />`}
      sub=${html`<code>${id}</code> <${Copy} text=${id} words="Copy the id" />`}><${Actions} message=${message} again=${again} /><//>
    <${Facts} message=${message} most=${most} origin=${origin} />
    ${message.state === "ready" || message.state === "scheduled" ? html`<${HeldBack} held=${holdup(room?.queues.find((each) => each.queue === queue) ?? policy.data?.stats ?? {}, policy.data, guardOf(breakers.data, queue))} />` : null}
    <div class="message-grid">
      <${Card} title="Timeline" actions=${history.data && !history.data.complete ? "its beginning is no longer kept" : ""}>
        <${Timeline} message=${message} entries=${history.data?.entries ?? []} most=${most} origin=${origin} /><//>
      <div class="stack">
        <${Tabs} name="What to show" value=${tab} set=${setTab} options=${[
          { value: "body", words: "Body" }, { value: "headers", words: "Headers", count: Object.keys(message.headers).length || null },
          { value: "failure", words: "Failure", count: message.failure ? "!" : null }, { value: "kind", words: "Same kind" }, { value: "commands", words: "Commands" },
          ...(mayRaw ? [{ value: "stored", words: "As stored" }] : [])]} />
        <${Tab} tab=${tab} message=${message} />
      </div>
    </div>`;
}

/** Why a message that could go does not. @param {{held: ReturnType<typeof holdup>}} props */
const HeldBack = ({ held }) => (held ? html`<p class="strip"><${Badge} tone=${held.tone}>${held.word}<//> <span class="muted">Its queue gives nothing now: ${held.cause}.</span> <a class="inline-link" href=${held.href}>See why</a></p>` : null);

/** @typedef {{queue: string, id: string, number: number} | null} Origin the dead letter that a message is a replay of */

/** Asked once: where a message comes from does not change. @param {string} where @returns {Origin} */
function useOrigin(where) {
  const [found, setFound] = useState(/** @type {{of: string, letter: Origin}} */ ({ of: "", letter: null }));
  useEffect(() => {
    const leave = new AbortController();
    get(`${where}/origin`, {}, leave.signal).then(({ letter }) => setFound({ of: where, letter }), () => undefined);
    return () => leave.abort();
  }, [where]);
  return found.of === where ? found.letter : null;
}

/** @param {{message: any, most: number | undefined, origin: Origin}} props */
function Facts({ message, most, origin }) {
  const kind = message.task_name || message.kind;
  const facts = [
    ["Queue", html`<${QueueLink} queue=${message.queue} />`],
    ["Priority", message.priority],
    ["Attempt", html`${message.attempt}${most ? html`<span class="faint"> of ${most}</span>` : null}`],
    ["Put", html`<${When} at=${message.put_at} />`],
    ...(origin ? [["Replayed from", html`<${MessageLink} queue=${origin.queue} id=${origin.id} />`]] : []),
    ...(kind ? [["Same kind", html`<a class="inline-link" href=${href("/dead", { q: `queue:${message.queue} kind:${kind}` })}>Dead letters</a>`]] : []),
    ...(message.state === "processing" ? [["Worker", message.consumer || "—"], ["Time left", html`<${Countdown} deadline=${message.deadline} from=${message.started_at} label="until " />`]] : []),
    ...(message.state === "scheduled" ? [["Due in", html`<${Countdown} deadline=${message.due} over="now" />`]] : []),
    ...(message.state === "dead" ? [["Died", html`<${When} at=${message.failed_at} />`]] : []),
    ...(message.expires ? [["Expires", html`<${When} at=${message.expires} />`]] : []),
    ...(message.trace_link ? [["Trace", html`<a class="inline-link" href=${message.trace_link} target="_blank" rel="noopener noreferrer">Open the trace ↗</a>`]] : []),
    ...(message.correlation_id ? [["Correlation", html`<code>${message.correlation_id}</code>`]] : []),
    ...(message.unique_key ? [["Unique key", html`<code>${message.unique_key}</code>`]] : []),
  ];
  return html`<dl class="figures">${facts.map(([words, value]) => html`<div key=${words}><dt>${words}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{message: any, again: () => void}} props */
function Actions({ message, again }) {
  const { queue, id, state } = message;
  const may = { move: useCan("move"), replay: useCan("replay"), discard: useCan("discard") };
  const where = path`queues/${queue}/messages/${id}`;
  const waits = state === "ready" || state === "scheduled";
  /** @param {string} verb @param {any} body @param {string} done */
  const run = async (verb, body, done) => { await act(() => post(`${where}/${verb}`, body), { doing: `${verb.replace("-", " ")} this message`, done }); again(); };
  /** @param {string} verb @param {string} title @param {string} scope @param {string} done @param {any} [body] */
  const ask = async (verb, title, scope, done, body) => { if (await confirm({ title, scope, verb: title.replace("?", ""), leave: "Leave it", danger: true })) await run(verb, body, done); };
  const replay = async () => {
    const made = await act(() => post(`${where}/replay`, { number: message.replayed_as.length + 1 }), { doing: "replay it", done: "Replayed as a new message." });
    again();
    if (made) go(at`/queues/${queue}/messages/${made.replayed_as}`);
  };
  useKeys(may.replay && state === "dead" ? [{ keys: "r", words: "Replay this message", group: "Message", run: () => void replay() }] : [], [state, message.replayed_as.length]);
  const reschedule = async () => {
    const delay = await show({ title: "Reschedule", body: Delay });
    if (delay) await run("reschedule", { delay }, `Due in ${delay}.`);
  };
  return html`
    ${may.move && state === "scheduled" ? html`<button class="button primary" onClick=${() => run("run-now", undefined, "It is ready now.")}><${Icon} name="play" />Run now</button>` : null}
    ${may.move && waits ? html`<button class="button" onClick=${reschedule}><${Icon} name="clock" />Reschedule…</button>
      <button class="button quiet-danger" onClick=${() => ask("cancel", "Cancel it?", "This one message is taken out of its queue for good.", "Cancelled.")}>Cancel…</button>` : null}
    ${may.move && state === "processing" ? html`<button class="button" onClick=${() => run("extend", { span: "1m", deliveries: message.deliveries }, "It has a minute more, from now.")}><${Icon} name="plus" />1 minute</button>
      <button class="button" onClick=${() => ask("release", "Release it?", "It is taken from its worker and goes back to its place. The worker may already have done a part of it.", "Back in its place.", { deliveries: message.deliveries })}><${Icon} name="back" />Release…</button>
      <button class="button quiet-danger" onClick=${() => ask("cancel", "Cancel it?", "It is taken from its worker and is gone for good. Work that has begun is not interrupted: the worker is told at its end that the message is gone.", "Cancelled.", { deliveries: message.deliveries })}>Cancel…</button>` : null}
    ${may.replay && state === "dead" ? html`<button class="button primary" onClick=${replay}><${Icon} name="replay" />Replay</button>` : null}
    ${may.discard && state === "dead" ? html`<button class="button quiet-danger" onClick=${() => discardOne(path`dead/${queue}`, id)}>Discard…</button>` : null}`;
}

/** @param {{close: (value?: any) => void}} props */
function Delay({ close }) {
  const [delay, setDelay] = useState("15m");
  return html`<form class="dialog-form" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); close(delay); }}>
    <label class="field"><span>Due in <em>such as 90s, 15m, 2h</em></span><input autofocus value=${delay} onInput=${(/** @type {any} */ e) => setDelay(e.target.value)} /></label>
    <div class="row">${["1m", "15m", "1h", "1d"].map((each) => html`<button key=${each} type="button" class="button small" onClick=${() => close(each)}>${each}</button>`)}</div>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!delay}>Reschedule</button></footer></form>`;
}

/** @param {{message: any, entries: any[], most: number | undefined, origin: Origin}} props */
function Timeline({ message, entries, most, origin }) {
  const steps = timelineOf(message, entries, most, origin);
  return html`<ol class="timeline">${steps.map((step, i) => html`<li key=${`${step.at} ${step.words}`} class=${step.tone}>
    ${step.since != null && step.since >= 1 ? html`<span class="timeline-span">${step.between} ${span(step.since)}</span>` : null}
    <div class="timeline-step"><b>${step.words}</b>${step.count ? html` <${Badge}>${step.count}<//>` : null}
      <time class="faint" dateTime=${new Date(step.at).toISOString()} title=${absolute(step.at)}>${absolute(step.at).slice(i && sameDay(step.at, steps[i - 1].at) ? 11 : 0)}</time></div>
    ${step.detail ? html`<p class="muted">${step.detail}</p>` : null}
    ${step.until ? html`<p><${Countdown} deadline=${step.until} over=${step.over ?? "now"} /> <span class="faint">${step.untilWords}</span></p>` : null}
    ${step.link ? html`<p><${MessageLink} queue=${step.linkQueue ?? message.queue} id=${step.link} /></p>` : null}</li>`)}</ol>`;
}

/** @param {number} a @param {number} b */
const sameDay = (a, b) => absolute(a).slice(0, 10) === absolute(b).slice(0, 10);

/** @param {{tab: string, message: any}} props */
function Tab({ tab, message }) {
  if (tab === "headers") return html`<${Card}>${Object.keys(message.headers).length ? html`<dl class="settings">${Object.entries(message.headers).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><code>${value}</code></dd></div>`)}</dl>`
    : html`<${Empty} icon="message" title="No headers">A producer may put some beside the body, such as a traceparent.<//>`}<//>`;
  if (tab === "failure") return html`<${FailureCard} message=${message} />`;
  if (tab === "stored") return html`<${AsStored} message=${message} />`;
  if (tab === "kind") return html`<${SameKind} message=${message} />`;
  if (tab === "commands") return html`<${Snippets} message=${message} />`;
  const text = message.body !== undefined ? jsonText(message.body) : message.body_base64;
  return html`<${Card} title=${message.content_type} actions=${html`<${Copy} text=${text} words="Copy the body" />`}>
    ${message.body !== undefined ? html`<${Json} value=${message.body} />` : html`<p class="muted">Bytes, as base64:</p><pre class="raw">${message.body_base64}</pre>`}<//>`;
}

/** What the store itself holds, shown when it is asked for: it hides no secret, and the audit says who looked. @param {{message: any}} props */
function AsStored({ message }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const look = () => act(() => get(path`queues/${message.queue}/messages/${message.id}` + "/stored"), { doing: "look into the store" }).then((told) => told && setFound(told));
  if (!found) return html`<${Card}><${Empty} icon="key" title="What the store itself holds">Every value by its key, table or field, with nothing hidden. The audit will say that you looked.<//>
    <p class="center"><button class="button" onClick=${look}>Show it</button></p><//>`;
  return html`<${Card} flush title=${`In ${found.engine}`} actions=${html`<button class="button small" onClick=${look}>Look again</button>`}><table aria-label="What is stored"><thead><tr><th scope="col">Where</th><th scope="col">Value</th><th scope="col" class="end">Size</th></tr></thead>
    <tbody>${found.parts.map((/** @type {any} */ part) => html`<tr key=${part.place}><td title=${part.place}><code>${part.place}</code></td><td class="stored">${part.text ?? html`<span class="faint">hex</span> ${part.hex}`}</td><td class="end">${size(part.size)}</td></tr>`)}</tbody></table><//>`;
}

/** @param {{message: any}} props */
function FailureCard({ message }) {
  const [chosen] = useQuery("attempt");
  const { failure, queue, id } = message;
  useEffect(() => document.querySelector("tr.chosen")?.scrollIntoView({ block: "center" }), [chosen]);
  if (!failure && !message.attempts.length) return html`<${Card}><${Empty} icon="check" title="It has not failed">Its error and traceback would stand here, newest first.<//><//>`;
  const first = message.attempt - message.attempts.length + 1;
  const attempts = message.attempts.map((/** @type {any} */ each, /** @type {number} */ i) => ({ ...each, number: String(first + i) })).reverse();
  return html`<div class="stack">${failure ? html`<${Card} title=${failure.type} actions=${html`<${Copy} text=${`${failure.type}: ${failure.text}\n${failure.traceback}`} words="Copy the error" />`}>
      <p>${failure.text || html`<span class="faint">without words</span>`}</p>
      ${failure.traceback ? html`<${Traceback} text=${failure.traceback} />` : null}<//>` : null}
    ${attempts.length ? html`<${Card} flush title="Attempts"><table aria-label="Attempts"><thead><tr><th scope="col">Attempt</th><th scope="col" class="wide-only">Worker</th><th scope="col">Error</th><th scope="col" class="end wide-only">Ran</th><th scope="col">Ended</th></tr></thead>
      <tbody>${attempts.map((/** @type {any} */ each) => html`<tr key=${each.number} class=${each.number === chosen ? "selected chosen" : ""}>
        <td><a class="inline-link" title="A link to this attempt" href=${href(at`/queues/${queue}/messages/${id}`, { tab: "failure", attempt: each.number })}>${each.number}</a></td>
        <td class="wide-only">${each.consumer || "—"}</td><td class="grows" title=${each.error}>${each.error}</td><td class="end wide-only">${span(each.ended_at - each.started_at)}</td><td><${When} at=${each.ended_at} /></td></tr>`)}</tbody></table><//>` : null}</div>`;
}

/** For a shell, in quotes where it needs them. @param {string} text */
const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** @param {{message: any}} props */
function Snippets({ message }) {
  const { queue, id } = message;
  const snippets = [
    ["Command line", `postroom message show ${id} --queue ${quoted(queue)}`],
    ["curl", `curl ${BASE}${path`queues/${queue}/messages/${id}`}`],
    ["Python", `room.queue(${JSON.stringify(queue)}).get(${JSON.stringify(id)})`],
  ];
  return html`<${Card}><dl class="snippets">${snippets.map(([words, text]) => html`<div key=${words}><dt>${words}</dt><dd><pre class="raw">${text}</pre><${Copy} text=${text} words=${`Copy: ${words}`} /></dd></div>`)}</dl>
    ${message.replayed_as.length ? html`<p class="muted">Replayed ${plural(message.replayed_as.length, "time")}.</p>` : null}<//>`;
}
