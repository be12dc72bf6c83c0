/** Pages that are fetched when they are first shown, or when the browser has nothing else to do. */
import { Failed } from "./parts.js";
import { html, useEffect, useState } from "./ui.js";

/** @type {(() => Promise<unknown>)[]} */
const later = [];

/**
 * @param {() => Promise<import("./ui.js").Component>} load
 * @returns {import("./ui.js").Component}
 */
export function lazy(load) {
  /** @type {Promise<import("./ui.js").Component> | undefined} */
  let asked;
  /** @type {import("./ui.js").Component | undefined} */
  let Page;
  const fetch = () => (asked ??= load().then((found) => (Page = found), (error) => { asked = undefined; throw error; }));
  later.push(fetch);
  return function Lazy(props) {
    const [, draw] = useState(0);
    const [error, setError] = useState(/** @type {Error | null} */ (null));
    const isThere = Boolean(Page);
    useEffect(() => {
      // By what was drawn, not by what is there now: it may have come between the two.
      if (!isThere) fetch().then(() => draw((n) => n + 1), setError);
    }, []);
    // After an upgrade of the server its files have other names: the page has to be loaded anew.
    if (error) return html`<${Failed} error=${new Error("The server is away or was replaced by another release.")} retry=${() => location.reload()} />`;
    return Page ? html`<${Page} ...${props} />` : html`<p class="loading" role="status">Loading…</p>`;
  };
}

/** Fetch all of them, so that going there takes no time and needs no server. */
export function fetchRest() {
  const idle = window.requestIdleCallback ?? ((/** @type {() => void} */ run) => setTimeout(run, 500));
  idle(() => { for (const fetch of later) void fetch().catch(() => undefined); });
}
