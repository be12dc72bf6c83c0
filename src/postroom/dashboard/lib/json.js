/** JSON for people: a value to read, collapsible, with every digit, and with what was hidden marked as such; and what they type. */
import { Big, parse } from "./api.js";
import { html, useState } from "./ui.js";

/** Longer lists and texts are shown in part first. */
const MANY = 100, LONG = 2_000;
const HIDDEN = /^(\[redacted\]|\*{3,}|•{3,})$/i;

/** @param {any} value @param {number} [indent] @returns {string} As text, with every digit. */
export function jsonText(value, indent = 2) {
  return JSON.stringify(value, null, indent) ?? "";
}

/** What somebody typed, with every digit; or what is wrong with it. @param {string} text @returns {{value: any, problem: string}} */
export function readJson(text) {
  if (/\d{16}/.test(text) && !("rawJSON" in JSON)) return { value: null, problem: "This browser cannot keep numbers that are so long: use the command line." };
  try {
    return { value: parse(text), problem: "" };
  } catch (error) {
    return { value: null, problem: `This is not JSON: ${/** @type {Error} */ (error).message}` };
  }
}

/** @param {{value: any}} props */
export const Json = ({ value }) => html`<div class="json"><${Value} value=${value} depth=${0} /></div>`;

/** @param {{value: any, depth: number}} props */
function Value({ value, depth }) {
  if (value instanceof Big) return html`<span class="json-number">${value.text}</span>`;
  if (Array.isArray(value)) return html`<${Many} open="[" close="]" depth=${depth} items=${value.map((each) => ({ value: each }))} />`;
  if (value !== null && typeof value === "object") return html`<${Many} open="{" close="}" depth=${depth} items=${Object.entries(value).map(([name, each]) => ({ name, value: each }))} />`;
  if (typeof value === "string") return html`<${Text} text=${value} />`;
  return html`<span class=${`json-${typeof value === "number" ? "number" : "word"}`}>${String(value)}</span>`;
}

/** @param {{text: string}} props */
function Text({ text }) {
  const [isWhole, setWhole] = useState(text.length <= LONG);
  if (HIDDEN.test(text)) return html`<span class="json-hidden" title="Hidden by the server's rules">${text}</span>`;
  return html`<span class="json-text">"${isWhole ? text : text.slice(0, LONG)}"</span>${isWhole ? null
    : html` <button class="link" onClick=${() => setWhole(true)}>all ${text.length.toLocaleString("en")} characters</button>`}`;
}

/** @param {{open: string, close: string, depth: number, items: {name?: string, value: any}[]}} props */
function Many({ open, close, depth, items }) {
  const [isOpen, setOpen] = useState(depth < 3);
  const [most, setMost] = useState(MANY);
  if (!items.length) return html`<span class="faint">${open}${close}</span>`;
  return html`<button class="json-fold" aria-expanded=${isOpen} aria-label=${isOpen ? "Fold" : "Unfold"} onClick=${() => setOpen(!isOpen)}>${open}</button>${isOpen
    ? html`<div class="json-inner">${items.slice(0, most).map((item, i) => html`<div key=${i}>${item.name !== undefined ? html`<span class="json-name">${item.name}</span><span class="faint">: </span>` : null}<${Value} value=${item.value} depth=${depth + 1} /></div>`)}
      ${items.length > most ? html`<button class="link" onClick=${() => setMost(most + 1_000)}>${items.length - most} more</button>` : null}</div>`
    : html`<span class="faint"> ${items.length} </span>`}<span class="faint">${close}</span>`;
}
