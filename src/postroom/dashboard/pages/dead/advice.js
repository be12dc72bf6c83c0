/** What a queue says about its own dead letters: what to do about one (`on_dead`), how old they are, how many it keeps, and how many it had to let go. */
import { path } from "../../lib/api.js";
import { useLoaded } from "../../lib/data.js";
import { count, plural } from "../../lib/format.js";
import { Badge, Bar, QueueLink } from "../../lib/parts.js";
import { When } from "../../lib/time.js";
import { html } from "../../lib/ui.js";

/** Queues that are told of; more would push the letters out of sight. */
const MOST = 3;

/** @param {{queues: import("../../lib/verdict.js").QueueView[], names: string[]}} props names: only of these; none: of all that have letters */
export function Advice({ queues, names }) {
  const meant = queues.filter(({ queue, stats, policy }) => ((stats.dead && (policy.on_dead || policy.dead_limit)) || stats.counters.evicted) && (!names.length || names.includes(queue)))
    .sort((a, b) => b.stats.dead - a.stats.dead).slice(0, MOST);
  if (!meant.length) return null;
  return html`<ul class="advice" aria-label="What their queues say">${meant.map(({ queue, stats, policy }) => html`<li key=${queue}><${QueueLink} queue=${queue} />
    <span class="muted" title=${policy.on_dead}>${policy.on_dead}</span>
    ${stats.dead ? html`<${Oldest} queue=${queue} />` : null}
    ${policy.dead_limit ? html`<${Kept} dead=${stats.dead} limit=${policy.dead_limit} />` : null}
    ${stats.counters.evicted ? html`<${Badge} tone="warn" title="Since the queue is there: the oldest go first. dead_limit and dead_retention say how many it keeps, and for how long.">${plural(stats.counters.evicted, "letter")} gone, beyond its limit or retention<//>` : null}</li>`)}</ul>`;
}

/** How long its oldest letter lies there: the first of a list. @param {{queue: string}} props */
function Oldest({ queue }) {
  const { data } = useLoaded(path`dead/${queue}`, { every: 30_000, query: { limit: 1 } });
  return data?.letters.length ? html`<span class="faint">oldest <${When} at=${data.letters[0].died_at} /></span>` : null;
}

/** How full it is: behind the limit the oldest go. @param {{dead: number, limit: number}} props */
const Kept = ({ dead, limit }) => html`<${Bar} parts=${[
  { value: dead, tone: dead >= 0.9 * limit ? "bad" : "info", words: `${count(dead)} kept` }, { value: Math.max(0, limit - dead), tone: "free", words: `of ${count(limit)}` }]} />
  <span class="faint">${count(dead)} of ${count(limit)}</span>`;
