/** Dialogs: one at a time, by the browser's own element, which keeps the focus inside and gives it back. */
import { Icon } from "./icons.js";
import { createStore, useStore } from "./store.js";
import { html, useEffect, useRef, useState } from "./ui.js";

/** @typedef {{title: string, body: import("./ui.js").Component, props?: any, wide?: boolean, bare?: boolean, side?: boolean}} Content */
const open = createStore(/** @type {(Content & {settle: (value: any) => void}) | null} */ (null));

/**
 * Show a dialog. Its body gets `close(value)`; this is settled with that value, or undefined when it was dismissed.
 * @param {Content} content
 * @returns {Promise<any>}
 */
export function show(content) {
  open.get()?.settle(undefined);
  return new Promise((resolve) => {
    open.set({ ...content, settle: (value) => { open.set(null); resolve(value); } });
  });
}

export function Dialogs() {
  const content = useStore(open);
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (content && element.current && !element.current.open) element.current.showModal();
  }, [content]);
  if (!content) return null;
  const close = content.settle;
  return html`<dialog key=${content.title} ref=${element} class=${`dialog${content.wide ? " wide" : ""}${content.bare ? " bare" : ""}${content.side ? " side" : ""}`} aria-label=${content.title}
      onCancel=${(/** @type {Event} */ e) => { e.preventDefault(); close(undefined); }}
      onClick=${(/** @type {MouseEvent} */ e) => e.target === element.current && close(undefined)}>
    <div class="dialog-box">
      ${content.bare ? null : html`<header class="dialog-head"><h2>${content.title}</h2>
        <button class="icon-button" aria-label="Close" onClick=${() => close(undefined)}><${Icon} name="close" /></button></header>`}
      <${content.body} ...${content.props ?? {}} close=${close} />
    </div>
  </dialog>`;
}

/**
 * Ask before something that cannot be taken back.
 * @param {{title: string, scope: string, detail?: any, verb: string, leave?: string, type?: string, danger?: boolean, reason?: boolean}} question
 *   scope: exactly what it concerns, as a sentence; leave: the word for not doing it; type: what has to be typed; reason: ask for one
 * @returns {Promise<{reason: string} | undefined>}
 */
export const confirm = (question) => show({ title: question.title, body: Confirm, props: question });

/** @param {any} props */
function Confirm({ scope, detail, verb, leave = "Cancel", type, danger, reason, close }) {
  const [typed, setTyped] = useState("");
  const [why, setWhy] = useState("");
  const isReady = !type || typed === type;
  /** @param {Event} event */
  const submit = (event) => { event.preventDefault(); if (isReady) close({ reason: why }); };
  return html`<form class="dialog-form" onSubmit=${submit}>
    <p class="scope">${scope}</p>
    ${detail ? html`<div class="muted">${detail}</div>` : null}
    ${reason ? html`<label class="field"><span>Reason <em>optional, others will read it</em></span>
      <input autofocus value=${why} onInput=${(/** @type {any} */ e) => setWhy(e.target.value)} maxlength="200" /></label>` : null}
    ${type ? html`<label class="field"><span>Type <code>${type}</code> to go on</span>
      <input autofocus autocomplete="off" spellcheck=${false} value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label>` : null}
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close(undefined)}>${leave}</button>
      <button type="submit" autofocus=${!type && !reason} class=${`button ${danger ? "danger" : "primary"}`} disabled=${!isReady}>${verb}</button></footer>
  </form>`;
}
