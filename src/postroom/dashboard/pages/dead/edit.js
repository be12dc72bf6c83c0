/** Another payload before a replay: edited as JSON, shown beside the old one, and checked by the server as it is typed. */
import { path, post } from "../../lib/api.js";
import { Diff } from "../../lib/diff.js";
import { jsonText, readJson } from "../../lib/json.js";
import { act } from "../../lib/toasts.js";
import { html, useState } from "../../lib/ui.js";
import { useDryRun } from "./dryrun.js";

/** What the server shows in the place of a secret. */
const HIDDEN = "[redacted]";

/** @param {{letter: any, close: (done?: boolean) => void}} props */
export function Edit({ letter, close }) {
  const { value: old, is_call: isCall } = letter.payload;
  const before = jsonText(old);
  const [text, setText] = useState(before);
  const { value, problem: unread } = read(text, isCall);
  const after = jsonText(isCall ? whole(old, value) : value); // not the text: what is shown is what is put
  const isChanged = !unread && after !== before;
  const where = path`queues/${letter.queue}/messages/${letter.id}/replay`;
  // The server has the schema of its kind, if there is one.
  const { plan, problem: refusal } = useDryRun(where, isChanged ? { body: value } : undefined);
  const problem = unread || refusal?.message;
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const done = await act(() => post(where, { body: value, number: letter.replayed_as.length + 1 }), {
      doing: "replay it", done: (result) => `Replayed with another payload as ${result.replayed_as}.`,
    });
    if (done) close(true);
  };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <label class="field"><span>Payload</span><textarea rows="12" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)}></textarea></label>
    ${isCall ? html`<p class="faint">Of <code>args</code> and <code>kwargs</code>, what you leave out stays as it was. So does what is to follow the task.</p>` : null}
    ${problem ? html`<p class="bad" role="alert">${problem}</p>` : isChanged ? html`<${Diff} name="What will be different" before=${before} after=${after} />` : html`<p class="faint">Nothing is changed yet.</p>`}
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!isChanged || !plan}>Replay with this payload</button></footer>
  </form>`;
}

/** A call of which a part was given, as the server completes it. @param {any} old @param {any} given */
const whole = (old, given) => (given !== null && typeof given === "object" && !Array.isArray(given) ? { ...old, ...given } : given);

/** A payload that has lost something on its way here must not be put. @param {string} text @param {boolean} isCall */
function read(text, isCall) {
  if (text.includes(HIDDEN)) return { value: null, problem: `Parts of this payload are hidden from you: ${isCall ? "leave out args or kwargs, whichever holds them." : "it can only be replayed as it is."}` };
  const { value, problem } = readJson(text);
  return { value, problem: value === null && !problem ? "null means no other payload: it would be replayed as it is." : problem };
}
