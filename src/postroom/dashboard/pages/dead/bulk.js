/** The dialogs of bulk work: what it would do is asked before it is offered. */
import { post } from "../../lib/api.js";
import { show } from "../../lib/dialog.js";
import { count, plural } from "../../lib/format.js";
import { follow, undo } from "../../lib/jobs.js";
import { act, toast } from "../../lib/toasts.js";
import { html, useState } from "../../lib/ui.js";
import { useDryRun } from "./dryrun.js";
import { ForGood } from "./forgood.js";

/** @typedef {import("./scope.js").Scope} Scope */

/** @param {Scope} scope */
export const replay = (scope) => show({ title: "Replay", body: Replay, props: { scope } });
/** @param {Scope} scope */
export const discard = (scope) => show({ title: "Discard", body: Discard, props: { scope } });

/** @param {{plan: any, problem: import("../../lib/api.js").Problem | null, verb: string}} props */
function Plan({ plan, problem, verb }) {
  if (problem) return html`<p class="plan bad" role="alert">${problem.message}</p>`;
  if (!plan) return html`<p class="plan" role="status">Looking what it would do…</p>`;
  return html`<dl class="plan" role="status" aria-label="Dry run">
    <div><dt>will be ${verb}</dt><dd>${count(plan.eligible)}</dd></div>
    ${plan.already ? html`<div><dt>were replayed before</dt><dd>${count(plan.already)}</dd></div>` : null}
    ${plan.refused ? html`<div><dt>are refused</dt><dd>${count(plan.refused)}</dd></div>` : null}
    ${plan.refusals?.length ? html`<p class="faint">${plan.refusals[0].reason}</p>` : null}</dl>`;
}

/** @param {{scope: Scope, close: (done?: boolean) => void}} props */
function Replay({ scope, close }) {
  const [canary, setCanary] = useState(true);
  const [again, setAgain] = useState(false);
  const [rate, setRate] = useState("");
  const [to, setTo] = useState("");
  const [why, setWhy] = useState("");
  const where = `${scope.base}/replay`;
  const options = { again, ...(to ? { to } : {}) };
  const { plan, problem } = useDryRun(where, { ...scope.body, ...options });
  const isOne = plan?.eligible === 1;
  const mayCanary = !scope.without?.includes("canary"), mayTo = !scope.without?.includes("to");
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const job = await act(() => post(where, { ...scope.body, ...options, ...(mayCanary ? { canary: canary && !isOne } : {}), ...(rate ? { rate } : {}) }, why.trim()), { doing: "replay" });
    if (!job) return;
    follow(job);
    close(true);
  };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <p class="scope">Put ${scope.words} again.</p>
    <${Plan} plan=${plan} problem=${problem} verb="put again" />
    ${mayCanary ? html`<label class="check"><input type="checkbox" checked=${canary && !isOne} disabled=${isOne} onChange=${() => setCanary(!canary)} />
      One first: the rest follows when it has succeeded</label>` : null}
    <label class="check"><input type="checkbox" checked=${again} onChange=${() => setAgain(!again)} />
      Also those that were replayed before</label>
    <div class="two">
      <label class="field"><span>At most <em>optional</em></span><input placeholder="50/s" value=${rate} onInput=${(/** @type {any} */ e) => setRate(e.target.value.trim())} /></label>
      ${mayTo ? html`<label class="field"><span>Into queue <em>optional</em></span><input placeholder="where each was" value=${to} onInput=${(/** @type {any} */ e) => setTo(e.target.value.trim())} /></label>` : null}
    </div>
    <label class="field"><span>Note <em>optional; it stands in the audit</em></span><input maxlength="200" placeholder="why they can succeed now" value=${why} onInput=${(/** @type {any} */ e) => setWhy(e.target.value)} /></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!plan?.eligible}>${plan?.eligible ? `Replay ${plural(plan.eligible, "letter")}` : "Replay"}</button></footer>
  </form>`;
}

/** How long a discard can be undone: for so long nothing goes. @type {[string, string][]} */
const SPANS = [["10s", "10 seconds"], ["1h", "an hour"], ["1d", "a day"], ["7d", "a week"]];

/** @param {{value: string, set: (value: string) => void}} props */
const UndoFor = ({ value, set }) => html`<label class="field"><span>It can be undone for <em>until then they stay where they are</em></span>
  <select value=${value} onChange=${(/** @type {any} */ e) => set(e.target.value)}>${SPANS.map(([span, words]) => html`<option key=${span} value=${span}>${words}</option>`)}</select></label>`;

/**
 * Have letters discarded after a while, as a job of the server: nothing of it hangs on this tab.
 * @param {string} base @param {any} chosen @param {string} after @param {number} number
 */
async function discardLater(base, chosen, after, number) {
  const job = await act(() => post(`${base}/discard`, { ...chosen, after }), { doing: "discard" });
  if (!job) return false;
  follow(job);
  toast({ text: `${plural(number, "letter")} will be discarded in ${SPANS.find(([span]) => span === after)?.[1]}.`, undo: () => void undo(job) });
  return true;
}

/** Ask, and have one letter discarded; whether it will be. @param {string} base where it lies, as dead/emails @param {string} id @param {string} what "dead letter" */
export const discardOne = (base, id, what = "dead letter") => show({ title: "Discard", body: One, props: { base, id, what } });

/** @param {{base: string, id: string, what: string, close: (done?: boolean) => void}} props */
function One({ base, id, what, close }) {
  const [after, setAfter] = useState(SPANS[0][0]);
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    if (await discardLater(base, { ids: [id] }, after, 1)) close(true);
  };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <p class="scope">Let go of this ${what}, for good.</p><${ForGood} base=${base} chosen=${{ ids: [id] }} /><${UndoFor} value=${after} set=${setAfter} />
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button danger">Discard</button></footer></form>`;
}

/** From so many on, the number has to be typed. */
const MANY = 10;

/** @param {{scope: Scope, close: (done?: boolean) => void}} props */
function Discard({ scope, close }) {
  const [typed, setTyped] = useState("");
  const [after, setAfter] = useState(SPANS[0][0]);
  const where = `${scope.base}/discard`;
  const { plan, problem } = useDryRun(where, scope.body);
  const asks = plan?.eligible >= MANY;
  const isReady = Boolean(plan?.eligible) && (!asks || typed === String(plan.eligible));
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    if (!isReady) return;
    if (await discardLater(scope.base, scope.body, after, plan.eligible)) close(true);
  };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <p class="scope">Let go of ${scope.words}, for good.</p>
    <${ForGood} base=${scope.base} chosen=${scope.body} />
    <${Plan} plan=${plan} problem=${problem} verb="discarded" />
    <${UndoFor} value=${after} set=${setAfter} />
    ${asks ? html`<label class="field"><span>Type <code>${plan.eligible}</code> to go on</span>
      <input autocomplete="off" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label>` : null}
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button>
      <button type="submit" class="button danger" disabled=${!isReady}>${plan?.eligible ? `Discard ${plural(plan.eligible, "letter")}` : "Discard"}</button></footer>
  </form>`;
}
