/** What the server would do, asked while somebody still makes up their mind. */
import { post, Problem } from "../../lib/api.js";
import { useEffect, useState } from "../../lib/ui.js";

/** So long after the last stroke (ms) it is asked again. */
const PAUSE = 300;

/**
 * An answer is of the wish as it is now, so whoever waits for one cannot send what was not looked at.
 * @param {string} where @param {any} wish undefined: nothing to ask
 * @returns {{plan: any, problem: Problem | null}} neither: not answered yet
 */
export function useDryRun(where, wish) {
  const [found, setFound] = useState({ of: "", plan: /** @type {any} */ (null), problem: /** @type {Problem | null} */ (null) });
  const of = wish === undefined ? "" : JSON.stringify(wish);
  useEffect(() => {
    if (!of) return undefined;
    let isOver = false;
    const asking = setTimeout(() => post(where, { ...wish, dry_run: true }).then(
      (plan) => isOver || setFound({ of, plan, problem: null }),
      (problem) => isOver || setFound({ of, plan: null, problem }),
    ), found.of ? PAUSE : 0);
    return () => { isOver = true; clearTimeout(asking); };
  }, [of]);
  return found.of === of ? found : { plan: null, problem: null };
}
