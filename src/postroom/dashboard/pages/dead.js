/** Dead letters: what was given up, grouped by what failed alike; look, note, replay, discard. */
import { BASE, get, path, queryText } from "../lib/api.js";
import { lookAgain, useLoaded } from "../lib/data.js";
import { CONDITIONS, parseFilter, withCondition } from "../lib/filter.js";
import { Icon } from "../lib/icons.js";
import { useKeys } from "../lib/keys.js";
import { Badge, Empty, Failed, Head, Menu, QueueLink } from "../lib/parts.js";
import { at, go, href, useQuery } from "../lib/router.js";
import { useRows } from "../lib/rows.js";
import { Searched } from "../lib/searched.js";
import { useCan } from "../lib/session.js";
import { Table, useSelection } from "../lib/table.js";
import { When } from "../lib/time.js";
import { shortId } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Advice } from "./dead/advice.js";
import { discard, replay } from "./dead/bulk.js";
import { GroupCard, GroupList, status } from "./dead/groups.js";
import { scopeOf } from "./dead/scope.js";

/** @param {import("../lib/live.js").Event} event */
const concerns = (event) => event.name === "lifecycle" || event.name === "move_to_dlq" || event.name === "audit";
/** @param {any} letter */
const open = (letter) => go(at`/dead/${letter.queue}/${letter.id}`);

export function DeadLetters() {
  const [text, setText] = useQuery("q");
  const filter = parseFilter(text);
  const chosen = filter.where.find((each) => each.startsWith("group="))?.slice(6) ?? "";
  const groups = useLoaded(path`dead/${filter.name}/groups`, { every: 5_000, when: concerns });
  const standing = filter.where.find((each) => each.startsWith("status="))?.slice(7);
  const shown = (groups.data?.groups ?? []).filter((/** @type {any} */ each) => !standing || status(each) === standing);
  const of = JSON.stringify([filter.name, filter.where]);
  const letters = useRows(async (cursor, limit) => {
    const found = await get(path`dead/${filter.name}`, { where: filter.where, cursor, limit });
    return { ...found, rows: found.letters };
  }, { of, every: 5_000, when: concerns });
  const queues = useLoaded("queues", { every: 10_000 });
  const selection = useSelection(of);
  const group = groups.data?.groups.find((/** @type {any} */ each) => each.group === chosen);
  const scope = scopeOf(filter, selection.selected, group);
  const mayReplay = useCan("replay"), mayDiscard = useCan("discard");
  const after = (/** @type {boolean | undefined} */ done) => done && (selection.set(new Set()), letters.reload(), groups.reload(), lookAgain());
  const run = (/** @type {typeof replay} */ bulk) => bulk(scope).then(after);
  useKeys(mayReplay ? [{ keys: "r", words: "Replay what is shown or selected", group: "Dead letters", run: () => void run(replay) }] : [], [of, selection.selected, group]);

  const isEmpty = !letters.isLoading && !letters.rows.length;
  return html`<${Head} title="Dead letters" sub="What was given up. Nothing leaves here by itself before its retention ends, or its queue keeps no more.">
      ${mayReplay ? html`<button class="button primary" disabled=${isEmpty} onClick=${() => run(replay)}><${Icon} name="replay" />Replay${selection.selected.size ? ` ${selection.selected.size}` : "…"}</button>` : null}
      ${mayDiscard ? html`<button class="button quiet-danger" disabled=${isEmpty} onClick=${() => run(discard)}><${Icon} name="trash" />Discard${selection.selected.size ? ` ${selection.selected.size}` : "…"}</button>` : null}
      <${Menu} label="More actions" items=${downloads(filter, useCan("raw"))} />
    <//>
    <${Search} text=${text} set=${setText} problem=${filter.problem} />
    ${letters.error ? html`<${Failed} error=${letters.error} retry=${letters.reload} />` : isEmpty && !groups.data?.groups.length
      ? html`<${HowFar} letters=${letters} /><${Nothing} isFiltered=${Boolean(text)} isLimited=${letters.isLimited} />`
      : html`<div class="dead">
        <${GroupList} groups=${shown} chosen=${chosen} isComplete=${groups.data?.complete ?? true}
          choose=${(/** @type {string | null} */ next) => setText(withCondition(text, "group", next))} />
        <div class="dead-letters">
          ${group ? html`<${GroupCard} group=${group} base=${path`dead/${filter.name}`} reload=${groups.reload} />` : null}
          <${Advice} queues=${queues.data?.queues ?? []} names=${Object.keys(group?.queues ?? {})} />
          <${HowFar} letters=${letters} />
          <${Table} name="Dead letters" fill columns=${COLUMNS} open=${open} selection=${mayReplay || mayDiscard ? selection : undefined} ...${letters} hasMore=${letters.hasMore && !letters.isLimited}
            empty=${html`<${Nothing} isFiltered=${true} isLimited=${letters.isLimited} />`} />
        </div>
      </div>`}`;
}

/** What can be taken along: the letters that are shown, as they are, and what is known about their groups. @param {import("../lib/filter.js").Filter} filter @param {boolean} mayExport */
const downloads = (filter, mayExport) => [
  ...(mayExport ? [{ words: "Export what is shown (JSONL)", icon: "log", run: () => download(`${path`dead/${filter.name}`}/export${queryText({ where: filter.where })}`, "dead-letters.jsonl") }] : []),
  { words: "Incident log (JSON)", icon: "log", run: () => download(`${path`dead/${filter.name}`}/incidents`, "incidents.json") },
];

/** @param {string} where @param {string} name */
function download(where, name) {
  const link = document.createElement("a");
  link.href = BASE + where;
  link.download = name;
  link.click();
}

const COLUMNS = [
  { id: "id", title: "Message", cell: (/** @type {any} */ letter) => html`<a class="id" href=${href(at`/dead/${letter.queue}/${letter.id}`)} title=${letter.id}>${shortId(letter.id)}</a>` },
  { id: "task", title: "Kind", wide: true, cell: (/** @type {any} */ letter) => letter.task_name || letter.kind || "—" },
  { id: "error", title: "Error", grows: true, cell: (/** @type {any} */ letter) => html`<span title=${letter.exception}>${letter.exception || "—"}</span>` },
  { id: "queue", title: "Queue", wide: true, cell: (/** @type {any} */ letter) => html`<${QueueLink} queue=${letter.queue} />` },
  { id: "attempts", title: "Attempts", align: /** @type {"end"} */ ("end"), wide: true, cell: (/** @type {any} */ letter) => letter.retries + 1 },
  { id: "died", title: "Died", align: /** @type {"end"} */ ("end"), cell: (/** @type {any} */ letter) => html`<${When} at=${letter.died_at} />` },
  { id: "replayed", title: "", label: "Replayed", wide: true, cell: (/** @type {any} */ letter) => (letter.replayed_as.length ? html`<${Badge} tone="info">replayed<//>` : null) },
];

/** @param {{text: string, set: (text: string) => void, problem: string}} props */
export function Search({ text, set, problem }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  const last = typed.split(/\s/).at(-1) ?? "";
  return html`<form class="filter" role="search" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); set(typed.trim()); }}>
    <div class="search-field"><${Icon} name="search" /><input type="search" data-search aria-label="Filter dead letters" list="conditions" spellcheck=${false}
      placeholder='error:"timed out" class:timeout payload.user.id:42 age>2h' value=${typed}
      onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} onChange=${(/** @type {any} */ e) => set(e.target.value.trim())} /></div>
    <datalist id="conditions">${CONDITIONS.map(([name, words]) => html`<option key=${name} value=${`${typed.slice(0, typed.length - last.length)}${name}`}>${words}</option>`)}</datalist>
    ${text ? html`<button type="button" class="link" onClick=${() => set("")}>Clear</button>` : null}
    ${problem ? html`<p class="bad" role="alert">${problem}</p>` : null}</form>`;
}

/** Where a search stopped because it may not look at more at a time. @param {{letters: import("../lib/rows.js").Rows}} props */
export const HowFar = ({ letters }) => (letters.isLimited
  ? html`<${Searched} found=${letters.rows.length} scanned=${letters.scanned} of="letter" isBusy=${letters.isLoading} isOver=${false} on=${letters.more}
      bound="A search looks at 100,000 letters or for 2 seconds at a time, the oldest of each queue first." />` : null);

/** @param {{isFiltered: boolean, isLimited: boolean}} props */
const Nothing = ({ isFiltered, isLimited }) => (isLimited
  ? html`<${Empty} icon="search" title="None so far">There are letters that were not looked at: search on, or name a queue or a group.<//>`
  : isFiltered ? html`<${Empty} icon="search" title="No dead letter is like that">Every condition must hold. Take one away, or look everywhere.<//>`
  : html`<${Empty} icon="dead" title="No dead letters" command="postroom dead ls">A message comes here when its attempts are used up, when it expires, cannot be read, or is
    rejected; with its exception, its history and its payload, to be looked at and replayed.<//>`);
