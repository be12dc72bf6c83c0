/** How far a search came that looks at one after the other, and a way to go on from where it stopped. */
import { plural, count } from "./format.js";
import { html } from "./ui.js";

/**
 * @param {{found: number, scanned: number, of: string, bound?: string, isBusy: boolean, isOver: boolean, on: () => void}} props
 *   of: what was looked at, as "message"; bound: why it stopped, in words; on: search on
 */
export function Searched({ found, scanned, of, bound = "", isBusy, isOver, on }) {
  const looked = `${count(found)} found among ${plural(scanned, of)}`;
  const words = isBusy ? `Looking at ${of}s one by one… ${scanned ? looked : ""}` : isOver ? `${looked}, all there are.` : `${looked} so far.${bound && ` ${bound}`}`;
  return html`<p class="row" role="status" aria-label="How far the search came"><span class="muted">${words}</span>
    ${isOver || isBusy ? null : html`<button class="button small" onClick=${on}>Search on</button>`}</p>`;
}
