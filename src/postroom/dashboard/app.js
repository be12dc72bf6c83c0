/** The dashboard: finds out who looks, opens the live line, shows a page. */
import { Problem, watch } from "./lib/api.js";
import { followStanding, standing } from "./lib/data.js";
import { fetchRest } from "./lib/lazy.js";
import { begin } from "./lib/live.js";
import { Login } from "./lib/login.js";
import { can, load, session } from "./lib/session.js";
import { Shell } from "./lib/shell.js";
import { useStore } from "./lib/store.js";
import { html, render } from "./lib/ui.js";
import "./lib/theme.js";
import { PAGES } from "./pages.js";

function App() {
  const who = useStore(session);
  if (who === "unknown") return html`<p class="loading" role="status">Loading…</p>`;
  if (!can("read")) return html`<${Login} />`;
  followStanding();
  begin({ audit: can("audit") });
  return html`<${Shell} pages=${PAGES} />`;
}

// A session that ends while the page is open leads back to the door.
watch((problem) => {
  if (problem?.status === 401 && can("read")) void load().catch(() => undefined);
});

// The other pages come once the first one has what it shows: until then the line is for that.
const unsubscribe = standing.subscribe(() => {
  unsubscribe();
  fetchRest();
});

async function start() {
  render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
  for (;;) {
    try {
      await load();
      return;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 2_000));
    }
  }
}

void start();
