/** Short words about what was done, at the edge of the screen; with a way back where there is one. */
import { Problem } from "./api.js";
import { createStore, useStore } from "./store.js";
import { html } from "./ui.js";
import { Icon } from "./icons.js";

/** @typedef {{id: number, kind: "done" | "failed", text: string, detail?: string, undo?: () => void, more?: {words: string, run: () => void}}} Toast */

/** How long a toast stays (ms): one with a way back stays as long as that is open. */
const STAY = 6_000, UNDO = 10_000, MOST = 4;
/** @type {import("./store.js").Store<Toast[]>} */
const toasts = createStore(/** @type {Toast[]} */ ([]));
let number = 0;

/** @param {Omit<Toast, "id" | "kind"> & {kind?: Toast["kind"]}} toast */
export function toast(toast) {
  const made = { kind: /** @type {Toast["kind"]} */ ("done"), ...toast, id: ++number };
  toasts.update((shown) => [...shown, made].slice(-MOST));
  setTimeout(() => dismiss(made.id), made.undo || made.more ? UNDO : STAY);
}

/** @param {number} id */
const dismiss = (id) => toasts.update((shown) => shown.filter((each) => each.id !== id));

/** Say what went wrong, in the words of the server. @param {unknown} error @param {string} [doing] */
export function complain(error, doing = "") {
  const problem = error instanceof Problem ? error : null;
  const detail = problem?.requestId ? `${problem.message} (request ${problem.requestId})` : String(/** @type {any} */ (error)?.message ?? error);
  toast({ kind: "failed", text: doing ? `Could not ${doing}` : "That did not work", detail });
}

/**
 * Do something that changes the room, and say how it ended.
 * @template T
 * @param {() => Promise<T>} work
 * @param {{doing: string, done?: string | ((result: T) => string), undo?: () => Promise<unknown>}} words
 *   doing: "pause emails"; done: "Paused emails."
 * @returns {Promise<T | undefined>} What came back; undefined when it did not work.
 */
export async function act(work, { doing, done, undo }) {
  try {
    const result = await work();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast({ text, undo: undo && (() => void act(undo, { doing: `undo: ${doing}`, done: "Undone." })) });
    return result;
  } catch (error) {
    complain(error, doing);
    return undefined;
  }
}

export function Toasts() {
  const shown = useStore(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map((each) => html`<div key=${each.id} class=${`toast ${each.kind}`}>
      <${Icon} name=${each.kind === "done" ? "check" : "alert"} />
      <div class="toast-words"><strong>${each.text}</strong>${each.detail ? html`<p>${each.detail}</p>` : null}</div>
      ${each.undo ? html`<button class="button small" onClick=${() => { dismiss(each.id); each.undo?.(); }}>Undo</button>` : null}
      ${each.more ? html`<button class="button small" onClick=${() => { dismiss(each.id); each.more?.run(); }}>${each.more.words}</button>` : null}
      <button class="icon-button" aria-label="Dismiss" onClick=${() => dismiss(each.id)}><${Icon} name="close" /></button>
    </div>`)}
  </div>`;
}
