/** One dead letter: why it died, what each attempt said, what it carried; and again, perhaps with another payload. */
import { path, post } from "../lib/api.js";
import { lookAgain, useLoaded } from "../lib/data.js";
import { show } from "../lib/dialog.js";
import { Diff } from "../lib/diff.js";
import { shortId, span } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { Json, jsonText } from "../lib/json.js";
import { useKeys } from "../lib/keys.js";
import { Badge, Card, Command, Copy, Empty, Failed, Head, MessageLink, QueueLink } from "../lib/parts.js";
import { go, href } from "../lib/router.js";
import { useCan } from "../lib/session.js";
import { When } from "../lib/time.js";
import { act } from "../lib/toasts.js";
import { Traceback } from "../lib/traceback.js";
import { html } from "../lib/ui.js";
import { discardOne } from "./dead/bulk.js";
import { Edit } from "./dead/edit.js";

/** Messages that are done, of a queue that keeps them, among which one of the same kind is looked for. */
const LIKE = 100;

/** @param {{queue: string, id: string}} props */
export function Letter({ queue, id }) {
  const { data: letter, error, reload } = useLoaded(path`dead/${queue}/letters/${id}`, { every: 10_000, when: (event) => event.name === "lifecycle" });
  const message = useLoaded(letter ? path`queues/${letter.queue}/messages/${letter.id}` : null, { every: 60_000 });
  const done = useLoaded(letter ? path`queues/${letter.queue}/messages` : null, { every: 60_000, query: { state: "done", limit: LIKE } });
  const like = done.data?.messages.findLast((/** @type {any} */ each) => each.kind === message.data?.kind && each.body !== undefined);
  const beside = useLoaded(like ? path`queues/${letter.queue}/messages/${like.id}` : null, { every: 60_000 }).data?.payload;
  const mayReplay = useCan("replay"), mayDiscard = useCan("discard");
  const replay = () => act(() => post(path`queues/${letter.queue}/messages/${letter.id}/replay`, { number: letter.replayed_as.length + 1 }), {
    doing: "replay it", done: (result) => `Replayed as ${result.replayed_as}.`,
  }).then(() => (reload(), lookAgain()));
  useKeys(mayReplay && letter ? [{ keys: "r", words: "Replay this letter", group: "Dead letters", run: () => void replay() }] : [], [letter]);
  if (error && !letter) {
    return error.status === 404
      ? html`<${Head} title="Dead letter" up=${{ href: href("/dead"), words: "Dead letters" }} /><${Empty} icon="dead" title="This letter is not here any more">It was discarded, or its retention ended.<//>`
      : html`<${Failed} error=${error} retry=${reload} />`;
  }
  if (!letter) return html`<p class="loading" role="status">Loading…</p>`;
  const { payload } = letter;
  const isTask = letter.task_id !== letter.id; // of Celery
  const discard = async () => {
    if (await discardOne(path`dead/${letter.queue}`, letter.id)) go("/dead");
  };
  return html`<${Head} title=${letter.exception || "Dead letter"} up=${{ href: href("/dead", { q: `group:${letter.group}` }), words: "Its group" }}
      sub=${html`${letter.task_name || letter.kind || "A message"} of <${QueueLink} queue=${letter.queue} />, died <${When} at=${letter.died_at} />`}>
      ${mayReplay ? html`<button class="button primary" onClick=${replay}><${Icon} name="replay" />Replay</button>` : null}
      ${mayReplay && !payload.fixed ? html`<button class="button" onClick=${() => show({ title: "Replay with another payload", wide: true, body: Edit, props: { letter } }).then((done) => done && (reload(), lookAgain()))}>Edit and replay…</button>` : null}
      ${mayDiscard ? html`<button class="button quiet-danger" onClick=${discard}><${Icon} name="trash" />Discard…</button>` : null}
    <//>
    <div class="letter">
      <div class="stack">
        <${Card} title="Attempts" flush><${Attempts} attempts=${letter.attempts} died=${letter.died_at} /><//>
        ${letter.traceback && letter.traceback.trim() !== letter.exception ? html`<${Card} title="Traceback" actions=${html`<${Copy} text=${letter.traceback} words="Copy the traceback" />`}><${Traceback} text=${letter.traceback} /><//>` : null}
        <${Card} title="Payload"><${Json} value=${payload.fixed ? asTold(letter, isTask) : payload.value} />
          ${mayReplay && payload.fixed ? html`<p class="muted">It can be replayed as it is, but not edited: ${payload.fixed}.</p>` : null}<//>
        ${beside && !beside.fixed && !payload.fixed ? html`<${Card} title="Beside one that succeeded" actions=${html`<${MessageLink} queue=${letter.queue} id=${like.id} />`}>
          <${Diff} name="This payload beside one that succeeded" before=${jsonText(beside.value)} after=${jsonText(payload.value)} /><//>` : null}
      </div>
      <div class="stack">
        <${Card} title="Facts"><dl class="facts">
          <div><dt>Message</dt><dd><${MessageLink} queue=${letter.queue} id=${letter.id} whole /></dd></div>
          <div><dt>Class</dt><dd><${Badge} tone=${letter.classification === "exception" ? "plain" : "warn"}>${letter.classification}<//></dd></div>
          ${isTask && letter.task_id ? html`<div><dt>Task</dt><dd class="id">${letter.task_id}</dd></div>` : null}
          ${letter.correlation_id ? html`<div><dt>Correlation</dt><dd class="id">${letter.correlation_id}</dd></div>` : null}
          ${message.data?.trace_link ? html`<div><dt>Trace</dt><dd><a class="inline-link" href=${message.data.trace_link} target="_blank" rel="noopener noreferrer">Open the trace ↗</a></dd></div>` : null}
          <div><dt>Worker</dt><dd>${letter.worker || "—"}</dd></div>
          <div><dt>Put</dt><dd><${When} at=${letter.put_at} /></dd></div>
          <div><dt>Payload hash</dt><dd class="id">${letter.payload_hash.slice(0, 16)}</dd></div>
          ${letter.replayed_as.length ? html`<div><dt>Replayed as</dt><dd>${letter.replayed_as.map((/** @type {string} */ each) => html`<a key=${each} class="id" title=${each} href=${href("/find", { id: each })}>${shortId(each)}</a> `)}</dd></div>` : null}
        </dl><//>
        <${Card} title="In a terminal"><${Command} text=${`postroom dead replay ${letter.id}${letter.replayed_as.length ? " --again" : ""}`} /><//>
      </div>
    </div>`;
}

/** What is known of a payload that nobody can read: of a task, what Celery printed. @param {any} letter @param {boolean} isTask */
const asTold = ({ args, kwargs }, isTask) => (isTask ? { args, kwargs } : args[0]);

/** @param {{attempts: {consumer: string, started_at: number, ended_at: number, error: string}[], died: number}} props */
function Attempts({ attempts }) {
  if (!attempts.length) return html`<${Empty} icon="clock" title="Nobody worked on it">It expired, or it could not be read.<//>`;
  return html`<ol class="attempts" reversed>${attempts.map((attempt, i) => html`<li key=${i}>
    <div class="row"><strong>Attempt ${i + 1}</strong><span class="muted">${attempt.consumer || "—"} · ran ${span(Math.max(0, attempt.ended_at - attempt.started_at))} · <${When} at=${attempt.ended_at} /></span>
      ${i && attempt.error === attempts[i - 1].error ? html`<${Badge}>same error<//>` : i ? html`<${Badge} tone="warn">another error<//>` : null}</div>
    ${i && attempt.error !== attempts[i - 1].error ? html`<${Diff} name=${`What changed from attempt ${i} to ${i + 1}`} before=${attempts[i - 1].error} after=${attempt.error} />`
      : html`<p class="error-line">${attempt.error || "no word"}</p>`}</li>`).reverse()}</ol>`;
}
