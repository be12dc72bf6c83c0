// Before everything else, and so no module: the theme that was chosen in this browser, before the first paint; and the
// questions that every page asks first, so that their answers are under way while the modules come. See lib/api.js.
try {
  const chosen = localStorage.getItem("postroom.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing shows what the system prefers.
}

/** @param {string} where @returns {Promise<import("./lib/api.js").Early | null>} */
async function ask(where) {
  const begun = performance.now();
  const response = await fetch(new URL(`api/v1/${where}`, document.baseURI), { headers: { accept: "application/json" }, credentials: "same-origin", priority: "high" });
  return { response, text: await response.text(), begun, ended: performance.now() };
}

/** @param {import("./lib/api.js").Early} found */
const mayLook = ({ response, text }) => response.status === 404 || (response.ok && Boolean(JSON.parse(text)?.actions?.includes("read")));

const session = ask("session").catch(() => null);
// Who may not look yet would only be refused.
const stats = session.then((found) => (found && mayLook(found) ? ask("stats") : null)).catch(() => null);
/** @type {any} */ (window).postroomEarly = new Map([["session", session], ["stats", stats]]);
