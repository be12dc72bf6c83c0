/** Groups of dead letters that failed alike, and what is known about one. */
import { path, post } from "../../lib/api.js";
import { Day } from "../../lib/chart.js";
import { show } from "../../lib/dialog.js";
import { count, plural } from "../../lib/format.js";
import { Markdown } from "../../lib/markdown.js";
import { Badge, QueueLink } from "../../lib/parts.js";
import { useCan } from "../../lib/session.js";
import { When } from "../../lib/time.js";
import { act } from "../../lib/toasts.js";
import { html, useState } from "../../lib/ui.js";

/**
 * @typedef {{status: string, bucket: string | null, cause: string, fix: string, link: string, author: string, at: number,
 *   reopened: boolean, changes: {at: number, author: string, what: Record<string, string>}[]}} Incident
 * @typedef {{group: string, count: number, first: number, last: number, queues: Record<string, number>, sample: string,
 *   task_name: string, exception: string, classification: string | null, incident: Incident | null, day: number[]}} Group
 */

/** @type {Record<string, import("../../lib/parts.js").Tone>} */
const TONES = { open: "bad", acknowledged: "warn", resolved: "good" };

/** @param {Group} group */
export const status = (group) => group.incident?.status ?? "open";

/** @param {{group: Group}} props */
export const Status = ({ group }) => html`<${Badge} tone=${TONES[status(group)]} dot>${group.incident?.reopened ? "open again" : status(group)}<//>`;

/** @param {{groups: Group[], chosen: string, choose: (group: string | null) => void, isComplete: boolean}} props */
export const GroupList = ({ groups, chosen, choose, isComplete }) => html`<nav class="groups" aria-label="Groups">
  ${groups.map((group) => html`<button key=${group.group} type="button" class="group" aria-pressed=${group.group === chosen}
      onClick=${() => choose(group.group === chosen ? null : group.group)}>
    <span class="group-head"><strong>${group.exception || "No exception"}</strong><${Day} values=${group.day} /><b class="group-count">${count(group.count)}</b></span>
    <span class="group-foot"><${Status} group=${group} />${group.incident?.bucket ? html`<${Badge}>${group.incident.bucket}<//>` : null}
      ${group.classification && group.classification !== "exception" ? html`<${Badge} tone="warn">${group.classification}<//>` : null}
      ${group.incident?.author ? html`<span class="faint" title="Who noted something last">${group.incident.author} ·</span>` : null}
      <span class="faint">${group.task_name || Object.keys(group.queues).join(", ")} · last <${When} at=${group.last} /></span></span>
  </button>`)}
  ${isComplete ? null : html`<p class="faint">There are more groups than are shown: narrow the search.</p>`}</nav>`;

/** @param {{group: Group, base: string, reload: () => void}} props base: where its letters are, as dead/- */
export function GroupCard({ group, base, reload }) {
  const mayNote = useCan("note");
  const known = group.incident;
  /** @param {string} next */
  const set = (next) => act(() => post(base + path`/groups/${group.group}/note`, { status: next }), {
    doing: `note that it is ${next}`, done: `Noted: ${next}.`, undo: () => post(base + path`/groups/${group.group}/note`, { status: status(group) }),
  }).then(reload);
  const note = () => show({ title: "Incident note", body: Note, props: { group, base } }).then((done) => done && reload());
  return html`<section class="card incident" aria-label="Group">
    <header class="card-head"><h2>${group.exception || "No exception"}</h2><div class="card-actions">
      ${mayNote && status(group) === "open" ? html`<button class="button small" onClick=${() => set("acknowledged")}>Acknowledge</button>` : null}
      ${mayNote && status(group) !== "resolved" ? html`<button class="button small" onClick=${() => set("resolved")}>Resolve</button>` : null}
      ${mayNote ? html`<button class="button small" onClick=${note}>Note…</button>` : null}</div></header>
    <p class="row"><${Status} group=${group} />${known?.bucket ? html`<${Badge}>${known.bucket}<//>` : null}
      <span class="muted">${plural(group.count, "letter")} in ${Object.keys(group.queues).map((queue, i) => html`${i ? ", " : ""}<${QueueLink} queue=${queue} />`)},
        since <${When} at=${group.first} />, last <${When} at=${group.last} /></span></p>
    ${known ? html`<dl class="facts">
      ${known.cause ? html`<div><dt>Cause</dt><dd><${Markdown} text=${known.cause} /></dd></div>` : null}
      ${known.fix ? html`<div><dt>Fix</dt><dd><${Markdown} text=${known.fix} /></dd></div>` : null}
      ${known.link ? html`<div><dt>Link</dt><dd>${/^https?:\/\//.test(known.link) ? html`<a href=${known.link} rel="noreferrer noopener" target="_blank">${known.link}</a>` : known.link}</dd></div>` : null}
    </dl>
    <ol class="notes" aria-label="Notes">${[...known.changes].reverse().map((change) => html`<li key=${change.at}>
      ${change.what.note ? html`<${Markdown} text=${change.what.note} />` : said(change.what)} <span class="faint">— ${change.author || "somebody"}, <${When} at=${change.at} /></span></li>`)}</ol>` : html`<p class="faint">Nobody has noted anything yet. A group that is resolved opens again with its next letter.</p>`}
  </section>`;
}

/** Which facts were noted at one time. @param {Record<string, string>} facts */
const said = (facts) => Object.entries(facts).map(([name, value]) => `${name}: ${value || "—"}`).join(", ");

/** @param {{group: Group, base: string, close: (done?: boolean) => void}} props */
function Note({ group, base, close }) {
  const known = group.incident;
  const [given, setGiven] = useState({
    text: "", status: status(group), bucket: known?.bucket ?? "", cause: known?.cause ?? "", fix: known?.fix ?? "", link: known?.link ?? "",
  });
  /** @param {string} field */
  const bind = (field) => ({ value: /** @type {any} */ (given)[field], onInput: (/** @type {any} */ e) => setGiven({ ...given, [field]: e.target.value }) });
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const body = { ...given, bucket: given.bucket || null };
    if (await act(() => post(base + path`/groups/${group.group}/note`, body), { doing: "keep the note", done: "Noted." })) close(true);
  };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <label class="field"><span>What happened <em>Markdown</em></span><textarea rows="3" autofocus maxlength="2000" ...${bind("text")}></textarea></label>
    <div class="two">
      <label class="field"><span>Status</span><select ...${bind("status")}><option value="open">Open</option><option value="acknowledged">Acknowledged</option><option value="resolved">Resolved</option></select></label>
      <label class="field"><span>Kind of trouble</span><select ...${bind("bucket")}><option value="">Not known yet</option><option value="bug">Bug: repair the code</option>
        <option value="transient">Transient: repair the neighbour</option><option value="poison">Poison: let go of the message</option></select></label>
    </div>
    <label class="field"><span>Root cause</span><input ...${bind("cause")} /></label>
    <label class="field"><span>Fix</span><input ...${bind("fix")} /></label>
    <label class="field"><span>Link <em>ticket, commit, dashboard</em></span><input ...${bind("link")} /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary">Keep the note</button></footer>
  </form>`;
}
