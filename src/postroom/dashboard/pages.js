import { total } from "./lib/data.js";
import { lazy } from "./lib/lazy.js";
import { Overview } from "./pages/overview.js";
import { Queues } from "./pages/queues.js";

/**
 * Every page, in the order of the navigation. A new page is a file in pages/ and an entry here; see README.md.
 * The first two are there at once; the others are fetched when they are shown, or in an idle moment.
 * @type {import("./lib/shell.js").PageEntry[]}
 */
export const PAGES = [
  { path: "/", title: "Overview", icon: "overview", key: "o", page: Overview },
  { path: "/queues", title: "Queues", icon: "queues", key: "q", page: Queues, count: (room) => room.queues.length },
  { path: "/queues/:queue", title: "Queue", page: lazy(() => import("./pages/queue.js").then((found) => found.Queue)) },
  { path: "/queues/:queue/messages/:id", title: "Message", page: lazy(() => import("./pages/message.js").then((found) => found.Message)) },
  { path: "/find", title: "Find messages", page: lazy(() => import("./pages/find.js").then((found) => found.Find)) },
  { path: "/processing", title: "Processing", icon: "processing", key: "p", page: lazy(() => import("./pages/processing.js").then((found) => found.Processing)),
    count: (room) => total(room, "processing"), alarm: (room) => total(room, "overdue") > 0 },
  { path: "/scheduled", title: "Scheduled", icon: "scheduled", key: "s", page: lazy(() => import("./pages/scheduled.js").then((found) => found.Scheduled)), count: (room) => total(room, "scheduled") },
  { path: "/dead", title: "Dead letters", icon: "dead", key: "d", page: lazy(() => import("./pages/dead.js").then((found) => found.DeadLetters)), count: (room) => total(room, "dead") },
  { path: "/dead/:queue/:id", title: "Dead letter", page: lazy(() => import("./pages/letter.js").then((found) => found.Letter)) },
  { path: "/workers", title: "Workers", icon: "workers", key: "w", page: lazy(() => import("./pages/workers.js").then((found) => found.Workers)) },
  { path: "/breakers", title: "Breakers", icon: "breakers", key: "b", page: lazy(() => import("./pages/breakers.js").then((found) => found.Breakers)) },
  { path: "/events", title: "Events", icon: "events", key: "e", page: lazy(() => import("./pages/events.js").then((found) => found.Events)) },
  { path: "/settings", title: "Settings", icon: "settings", page: lazy(() => import("./pages/settings.js").then((found) => found.Settings)) },
];
