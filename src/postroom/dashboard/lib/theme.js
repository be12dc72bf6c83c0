/** Light, dark, or as the system has it; see also theme.js beside index.html, which is there before the first paint. */
import { createKept, createStore } from "./store.js";

/** "auto", "light" or "dark". */
export const theme = createKept("theme", "auto");
const system = matchMedia("(prefers-color-scheme: dark)");
/** What is seen: "light" or "dark". */
export const shade = createStore("light");

function paint() {
  const chosen = theme.get();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  shade.set(chosen === "auto" ? (system.matches ? "dark" : "light") : chosen);
}

theme.subscribe(paint);
system.addEventListener("change", paint);
paint();

export function nextTheme() {
  theme.update((now) => ({ auto: "light", light: "dark", dark: "auto" })[now] ?? "auto");
}
