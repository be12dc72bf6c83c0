/** A traceback: the frames of the program itself, all of them with those set apart, or the text as it came. */
import { Tabs } from "./parts.js";
import { html, useState } from "./ui.js";

/** Frames of installed packages and of Python itself: seldom where it went wrong. */
const THEIRS = /site-packages|dist-packages|\/lib\/python\d|<frozen /;

/** @typedef {{text: string, isOwn: boolean}} Line */

/** @param {string} traceback @returns {Line[]} Each line, and whether it is of a frame of the program itself or of none. */
export function linesOf(traceback) {
  let isOwn = true;
  return traceback.trimEnd().split("\n").map((text) => {
    if (/^\s+File "/.test(text)) isOwn = !THEIRS.test(text);
    else if (!/^\s/.test(text)) isOwn = true;
    return { text, isOwn };
  });
}

/** @param {{text: string}} props */
export function Traceback({ text }) {
  const lines = linesOf(text);
  const theirs = lines.filter(({ text, isOwn }) => !isOwn && /^\s+File "/.test(text)).length;
  const [how, setHow] = useState("own");
  const options = [{ value: "own", words: "Our frames" }, { value: "all", words: "All frames", count: theirs || null }, { value: "raw", words: "Raw" }];
  const hasFrames = /^\s+File "/m.test(text);
  return html`<div class="traceback">${hasFrames ? html`<${Tabs} name="Traceback" value=${how} set=${setHow} options=${options} />` : null}
    <pre class="raw" tabindex="0">${how === "raw" ? text : lines.filter(({ isOwn }) => isOwn || how === "all").map((line, i) => html`<span key=${i} class=${line.isOwn ? "" : "theirs"}>${line.text}${"\n"}</span>`)}</pre></div>`;
}
