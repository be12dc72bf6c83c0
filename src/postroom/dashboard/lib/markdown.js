/**
 * What people write in notes, as Markdown has it: paragraphs, lists, **bold**, *emphasis*, `code` and links. Made of elements, never of
 * HTML, so that nothing in a note can be more than words; and a link leads only where a browser would go for a page.
 */
import { html } from "./ui.js";

/** What stands out inside a line; the first that begins counts. */
const MARKS = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>)]*[^\s<>).,;:!?])/g;
const ITEM = /^\s*(?:[-*]|\d+[.)])\s+/;

/** @param {{text: string}} props */
export const Markdown = ({ text }) => html`<div class="prose">${blocksOf(text).map((block, i) => (block.isList
  ? html`<ul key=${i}>${block.lines.map((line, n) => html`<li key=${n}>${inline(line.replace(ITEM, ""))}</li>`)}</ul>`
  : html`<p key=${i}>${block.lines.map((line, n) => html`${n ? html`<br />` : null}${inline(line)}`)}</p>`))}</div>`;

/** @param {string} text @returns {{isList: boolean, lines: string[]}[]} */
function blocksOf(text) {
  /** @type {{isList: boolean, lines: string[]}[]} */
  const blocks = [];
  let isNew = true;
  for (const line of text.split("\n")) {
    const isList = ITEM.test(line), last = blocks.at(-1);
    if (!line.trim()) isNew = true;
    else if (last && !isNew && last.isList === isList) last.lines.push(line);
    else blocks.push({ isList, lines: [line] });
    if (line.trim()) isNew = false;
  }
  return blocks;
}

/** @param {string} line */
function inline(line) {
  const parts = [];
  let end = 0;
  for (const found of line.matchAll(MARKS)) {
    const [all, code, bold, stress, words, target, bare] = found;
    parts.push(line.slice(end, found.index), code ? html`<code>${code}</code>` : bold ? html`<strong>${bold}</strong>` : stress ? html`<em>${stress}</em>`
      : html`<a href=${target ?? bare} rel="noreferrer noopener" target="_blank">${words ?? bare}</a>`);
    end = found.index + all.length;
  }
  return [...parts, line.slice(end)];
}
