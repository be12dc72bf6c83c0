/** Archives: the events that a service could not handle, kept by that service; look, note, replay to it alone, discard. */
import { get, path, post } from "../lib/api.js";
import { useLoaded } from "../lib/data.js";
import { show } from "../lib/dialog.js";
import { parseFilter, withCondition } from "../lib/filter.js";
import { count, plural, shortId, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { Json } from "../lib/json.js";
import { Badge, Card, Empty, Failed, Tabs } from "../lib/parts.js";
import { setQuery, useQuery } from "../lib/router.js";
import { useRows } from "../lib/rows.js";
import { useCan } from "../lib/session.js";
import { Table, useSelection } from "../lib/table.js";
import { When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { html } from "../lib/ui.js";
import { HowFar, Search } from "./dead.js";
import { discard, discardOne, replay } from "./dead/bulk.js";
import { GroupCard, GroupList } from "./dead/groups.js";
import { scopeIn } from "./dead/scope.js";

/** @typedef {{service: string, broker: string, archive: boolean}} Service */
/** An archive that is so full is worth a word. */
const FULL = 0.8;

export function Archives() {
  const { data, error, reload } = useLoaded("services", { every: 60_000 });
  const [name, setName] = useQuery("service");
  if (error && !data) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!data) return html`<p class="loading" role="status">Loading…</p>`;
  /** @type {Service[]} */
  const services = data.services;
  if (!services.length) return html`<${Card}><${Empty} icon="events" title="No service is shown here" command="postroom serve --service billing">A service of events keeps what it could not handle in an archive of its own.
    Name it when the server is started, and its archive can be looked at and replayed here.<//><//>`;
  const chosen = services.find((each) => each.service === name) ?? services[0];
  return html`${services.length > 1 ? html`<${Tabs} name="Service" value=${chosen.service} set=${(/** @type {string} */ next) => { setQuery({ q: null }); setName(next); }} options=${services.map((each) => ({ value: each.service, words: each.service }))} />` : null}
    <${Standing} service=${chosen} />
    ${chosen.archive ? html`<${Archive} key=${chosen.service} service=${chosen} />` : html`<${Card}><${Empty} icon="dead" title=${`${chosen.service} keeps no archive`}>It was made with archive=False: what it cannot handle is only in its log.<//><//>`}`;
}

/** How a service stands: what waits, what waits to be tried again, and how full its archive is. @param {{service: Service}} props */
function Standing({ service }) {
  const { data, error } = useLoaded(path`services/${service.service}/stats`, { every: 5_000 });
  /** @param {Record<string, number | null>} counts */
  const sum = (counts) => Object.values(counts).reduce((/** @type {number} */ all, each) => all + (each ?? 0), 0);
  if (error && !data) return html`<p class="strip bad" role="alert"><${Icon} name="alert" />${error.message}</p>`;
  const facts = data ? [
    ["Service", service.service, service.broker === "rabbitmq" ? "on RabbitMQ" : "on this store"],
    ["Waiting", count(sum(data.ready)), plural(Object.keys(data.ready).length, "queue")], ["Tried again later", count(sum(data.delayed)), ""],
    ["Archived", data.archived == null ? "—" : count(data.archived), ""], ["Oldest", data.oldest ? span(data.oldest) : "—", ""],
  ] : [["Service", service.service, ""]];
  const rungs = Object.entries(data?.delayed ?? {});
  return html`<dl class="figures">${facts.map(([words, value, note]) => html`<div key=${words}><dt>${words}</dt><dd>${value}${note ? html` <small>${note}</small>` : null}</dd></div>`)}
    ${data ? html`<div><dt>Full</dt><dd class=${data.filled >= FULL ? "bad" : ""}>${Math.round(100 * data.filled)} %<meter min="0" max="1" high=${FULL} optimum="0" value=${data.filled} aria-label="How full the archive is"></meter></dd></div>` : null}</dl>
    ${data?.filled >= FULL ? html`<p class="strip bad" role="alert"><${Icon} name="alert" />The archive is nearly full: the oldest letters will be dropped, and counted.</p>` : null}
    ${rungs.length ? html`<${Ladder} rungs=${rungs} isLadder=${service.broker === "rabbitmq"} />` : null}`;
}

/**
 * What waits to be tried again: on RabbitMQ by the rung of the ladder that it waits on, on a store by queue, since each message there has a time of its own.
 * @param {{rungs: [string, number | null][], isLadder: boolean}} props
 */
function Ladder({ rungs, isLadder }) {
  const most = Math.max(1, ...rungs.map(([, n]) => n ?? 0));
  return html`<${Card} title=${isLadder ? "Retry ladder" : "Tried again later"}><ol class="ladder" aria-label=${isLadder ? "Rungs of the retry ladder" : "What is tried again later, by queue"}>${rungs.map(([name, n]) => html`<li key=${name}>
    <code>${name}</code><span class="ladder-bar" aria-hidden="true"><i style=${{ width: `${(100 * (n ?? 0)) / most}%` }}></i></span><b class=${n ? "" : "zero"}>${n == null ? "—" : count(n)}</b></li>`)}</ol><//>`;
}

/** @param {{service: Service}} props */
function Archive({ service }) {
  const base = path`services/${service.service}/archive`;
  const [text, setText] = useQuery("q");
  const filter = parseFilter(text);
  const asked = filter.where.find((each) => each.startsWith("group="))?.slice(6) ?? "";
  const groups = useLoaded(`${base}/groups`, { every: 5_000 });
  const letters = useRows(async (cursor, limit) => {
    const found = await get(base, { where: filter.where, cursor, limit });
    return { ...found, rows: found.letters };
  }, { of: JSON.stringify([base, filter.where]), every: 5_000 });
  const selection = useSelection(text);
  const group = groups.data?.groups.find((/** @type {any} */ each) => each.group === asked);
  const may = { replay: useCan("replay"), discard: useCan("discard") };
  const scope = { ...scopeIn(base, `in the archive of ${service.service}`, filter, selection.selected, group), without: service.broker === "rabbitmq" ? ["to", "canary"] : ["to"] };
  const again = () => (letters.reload(), groups.reload());
  const run = (/** @type {typeof replay} */ bulk) => bulk(scope).then((done) => done && (selection.set(new Set()), again()));
  const isEmpty = !letters.isLoading && !letters.rows.length;
  const number = selection.selected.size ? ` ${selection.selected.size}` : "…";
  return html`<div class="row spread"><${Search} text=${text} set=${setText} problem=${filter.problem} /><div class="row">
      ${may.replay ? html`<button class="button primary" disabled=${isEmpty} onClick=${() => run(replay)}><${Icon} name="replay" />Replay${number}</button>` : null}
      ${may.discard ? html`<button class="button quiet-danger" disabled=${isEmpty} onClick=${() => run(discard)}><${Icon} name="trash" />Discard${number}</button>` : null}</div></div>
    ${letters.error ? html`<${Failed} error=${letters.error} retry=${letters.reload} />` : isEmpty && !groups.data?.groups.length ? html`<${Card}><${Nothing} name=${service.service} isFiltered=${Boolean(text)} /><//>`
      : html`<div class="dead"><${GroupList} groups=${groups.data?.groups ?? []} chosen=${asked} isComplete=${groups.data?.complete ?? true} choose=${(/** @type {string | null} */ next) => setText(withCondition(text, "group", next))} />
        <div class="dead-letters">${group ? html`<${GroupCard} group=${group} base=${base} reload=${groups.reload} />` : null}
          <${HowFar} letters=${letters} />
          <${Table} name="Archived events" fill columns=${COLUMNS} open=${(/** @type {any} */ letter) => show({ title: letter.exception || "Archived event", wide: true, body: Letter, props: { letter, base, may, again } })}
            selection=${may.replay || may.discard ? selection : undefined} ...${letters} hasMore=${letters.hasMore && !letters.isLimited} empty=${html`<${Nothing} name=${service.service} isFiltered=${true} />`} /></div></div>`}`;
}

const COLUMNS = [
  { id: "id", title: "Event", cell: (/** @type {any} */ letter) => html`<span class="id" title=${letter.id}>${shortId(letter.id)}</span>` },
  { id: "task", title: "Handler", wide: true, cell: (/** @type {any} */ letter) => letter.task_name || letter.kind || "—" },
  { id: "error", title: "Error", grows: true, cell: (/** @type {any} */ letter) => html`<span title=${letter.exception}>${letter.exception || "—"}</span>` },
  { id: "attempts", title: "Attempts", align: /** @type {"end"} */ ("end"), wide: true, cell: (/** @type {any} */ letter) => letter.retries + 1 },
  { id: "died", title: "Archived", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ letter) => html`<${When} at=${letter.died_at} />` },
  { id: "replayed", title: "", label: "Replayed", wide: true, cell: (/** @type {any} */ letter) => (letter.replayed_as?.length ? html`<${Badge} tone="info">replayed<//>` : null) },
];

/** @param {{name: string, isFiltered: boolean}} props */
const Nothing = ({ name, isFiltered }) => (isFiltered ? html`<${Empty} icon="search" title="No archived event is like that">Every condition must hold. Take one away, or look at all of them.<//>`
  : html`<${Empty} icon="check" title="The archive is empty" command=${`postroom dead ls --service ${name}`}>An event comes here when a handler of ${name} has failed as often as it may; with its error and its payload, to be replayed to ${name} alone.<//>`);

/** One archived event. @param {{letter: any, base: string, may: {replay: boolean, discard: boolean}, again: () => void, close: (value?: any) => void}} props */
function Letter({ letter, base, may, again, close }) {
  const where = base + path`/letters/${letter.id}`;
  /** @param {string} verb @param {string} done */
  const run = async (verb, done) => {
    if (await act(() => post(`${where}/${verb}`), { doing: `${verb} it`, done }) === undefined) return;
    close();
    again();
  };
  const letGo = () => discardOne(base, letter.id, "archived event").then((done) => done && again());
  return html`<div class="dialog-body"><p class="muted">${letter.task_name || letter.kind} · <${When} at=${letter.died_at} /> · <code>${letter.id}</code></p>
    ${letter.traceback ? html`<pre class="raw" tabindex="0">${letter.traceback}</pre>` : null}
    <${Json} value=${{ args: letter.args, kwargs: letter.kwargs }} />
    <footer class="dialog-foot">${may.discard ? html`<button class="button quiet-danger" onClick=${letGo}>Discard…</button>` : null}
      ${may.replay ? html`<button class="button primary" onClick=${() => run("replay", "Replayed to this service alone.")}><${Icon} name="replay" />Replay</button>` : null}</footer></div>`;
}
