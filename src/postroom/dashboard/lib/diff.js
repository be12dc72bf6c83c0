/** What changed between two texts, line by line: the longest common part stays, the rest went or came. */
import { html } from "./ui.js";

/** More lines than this are not compared, only shown: the comparison takes their product. */
const MOST = 1_500;

/** @typedef {{sign: " " | "-" | "+", text: string}} Line */

/** @param {string} before @param {string} after @returns {Line[]} */
function diff(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  if (a.length > MOST || b.length > MOST) return [...lines("-", a), ...lines("+", b)];
  const same = common(a, b);
  /** @type {Line[]} */
  const found = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ sign: " ", text: a[i] });
      i += 1;
      j += 1;
    } else if (i < a.length && (j >= b.length || same[i + 1][j] >= same[i][j + 1])) found.push({ sign: "-", text: a[i++] });
    else found.push({ sign: "+", text: b[j++] });
  }
  return found;
}

/** @param {"-" | "+"} sign @param {string[]} texts @returns {Line[]} */
const lines = (sign, texts) => texts.map((text) => ({ sign, text }));

/** How long the common part of the rest is, from each place in both. @param {string[]} a @param {string[]} b */
function common(a, b) {
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  return length;
}

/** @param {{before: string, after: string, name: string}} props */
export const Diff = ({ before, after, name }) => html`<div class="diff" role="figure" aria-label=${name} tabindex="0">
  ${diff(before, after).map((line, i) => html`<div key=${i} class=${line.sign === "-" ? "went" : line.sign === "+" ? "came" : ""}><i aria-hidden="true">${line.sign}</i>${
    line.sign === " " ? line.text : line.sign === "-" ? html`<del>${line.text}</del>` : html`<ins>${line.text}</ins>`}</div>`)}</div>`;
