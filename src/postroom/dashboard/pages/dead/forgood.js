/**
 * What a discard takes and what it leaves, once it is carried out: then the letter is gone from the store, and only a copy that was
 * taken before brings it back. Until then it is a job that waits, and to cancel that is to undo it.
 */
import { BASE, queryText } from "../../lib/api.js";
import { useCan } from "../../lib/session.js";
import { html } from "../../lib/ui.js";

/** @param {{base: string, chosen: {ids: string[]} | {where: string[]}}} props */
export function ForGood({ base, chosen }) {
  const mayExport = useCan("raw");
  const where = "where" in chosen ? chosen.where : chosen.ids.length === 1 ? [`task=${chosen.ids[0]}`] : null;
  return html`<ul class="forgood">
    <li><b>Goes:</b> the payload, the error with its traceback, and all attempts. Once they are gone, nothing brings them back.</li>
    <li><b>Stays:</b> the notes about its group, and a line in the audit that says who did it.</li>
    ${mayExport && where ? html`<li><b>A copy:</b> <a class="inline-link" href=${`${BASE}${base}/export${queryText({ where })}`} download="dead-letters.jsonl">download a copy first</a>; <code>postroom dead import</code> makes dead letters of it again. The audit tells that it was taken.</li>` : null}
  </ul>`;
}
