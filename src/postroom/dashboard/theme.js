// Before the first paint, and so no module: the theme that was chosen in this browser.
try {
  const chosen = localStorage.getItem("postroom.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing shows what the system prefers.
}
