/** Our icons: lines on a 24 × 24 grid, in the colour of the text. */
import { html } from "./ui.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  queues: "M4 6h16M4 12h16M4 18h10",
  processing: "M12 7v5l3 2M21 12a9 9 0 1 1-3-6.700M21 4v4h-4",
  scheduled: "M7 3v3M17 3v3M4 9h16M5 5h14a1 1 0 0 1 1 1v13a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1zM12 13v3l2 1",
  dead: "M4 6h16v13H4zM4 7l8 6 8-6M16.5 15.500l4 4M20.5 15.500l-4 4",
  workers: "M12 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.6-6.5 8-6.500s8 2.5 8 6.5",
  breakers: "M13 3 5 14h6l-1 7 8-11h-6z",
  events: "M3 12h4l3-8 4 16 3-8h4",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4.500v5M8 14.500v5",
  message: "M4 6h16v12H4zM4 7l8 6 8-6",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4",
  check: "M5 12.5 10 17 19 7",
  alert: "M12 8v5M12 16.500v.100M10.3 4.2 2.8 17.500A2 2 0 0 0 4.5 20.500h15a2 2 0 0 0 1.7-3L13.7 4.200a2 2 0 0 0-3.4 0z",
  close: "M6 6l12 12M18 6 6 18",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.500v15l12-7.500z",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.4 1.400M17.6 17.6 19 19M5 19l1.4-1.400M17.6 6.4 19 5",
  moon: "M20 14.500A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.500z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  more: "M5 11.500v1M12 11.500v1M19 11.500v1",
  chevron: "M9 6l6 6-6 6",
  back: "M15 6l-6 6 6 6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  replay: "M4 12a8 8 0 1 0 3-6.200M4 4v5h5",
  up: "M12 19V5M6 11l6-6 6 6",
  key: "M14.5 9.500a4.5 4.5 0 1 0-3.8 4.400L13 16h2v2h2v2h3v-3l-6.2-6.200a4.5 4.5 0 0 0 .7-1.300z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  plus: "M12 5v14M5 12h14",
  log: "M5 4h11l3 3v13H5zM9 10h6M9 14h6",
  external: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
};

/** @param {{name: string}} props Beside words only: an icon alone has its name on its button. */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
  <path d=${PATHS[name] ?? PATHS.more} /></svg>`;
