/** Charts over time, drawn by uPlot in our colours; and sparklines, which are a path. */
import { now } from "./clock.js";
import { count } from "./format.js";
import { shade } from "./theme.js";
import { useStore } from "./store.js";
import { html, plotter, useEffect, useRef } from "./ui.js";
import { absolute, zone } from "./time.js";

/**
 * @typedef {{words: string, tone: string, values: (number | null)[], dash?: boolean, fill?: boolean}} Line
 *   tone: the name of a colour token, such as "accent" or "bad"
 */

/** @typedef {import("./router.js").Range} Range */
/** @typedef {{at: number, text: string, cause: string, by: string, group: string}} Mark */

/** What happened, by the colour of its cause. @type {Record<string, string>} */
export const MARKS = { deploy: "accent", incident: "bad", note: "text-faint" };

/** A colour token as it is in this theme, for a canvas, which knows no variables. @param {string} name */
function token(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/**
 * @param {{name: string, times: number[], lines: Line[], text: (value: number) => string, mark?: (value: number) => string, over?: number, height?: number, log?: boolean, target?: number | null, range?: Range | null, marks?: Mark[], brush?: (range: Range) => void}} props
 *   times: epoch ms; over: how far back it reaches (ms); name: what it shows, for screen readers; mark: how the axis writes a value;
 *   log: the values are spans (ms), by powers: a second and an hour can be read from one chart; target: a level to compare with; range: show only this; marks: what happened, where; brush: somebody drew over a part of it
 */
export function Chart({ name, times, lines, text, mark = text, over = 0, height = 180, log = false, target = null, range = null, marks = [], brush }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {import("./ui.js").Plot | null} */ (null));
  const legend = useRef(/** @type {HTMLDivElement | null} */ (null));
  const dark = useStore(shade);
  const shape = JSON.stringify([dark, useStore(zone), log, target, height, over, range, lines.map(({ words, tone, dash, fill }) => [words, tone, dash, fill])]);
  /** @type {any} */
  const data = [times.map((time) => time / 1_000), ...lines.map((line) => line.values)];
  const newest = useRef(data);
  newest.current = data;
  const drawn = useRef(brush);
  drawn.current = brush;
  const marked = useRef(marks);
  marked.current = marks;
  useEffect(() => plot.current?.redraw(false), [marks.map((mark) => mark.at).join()]);
  useEffect(() => {
    const node = box.current;
    if (!node) return undefined;
    let isOver = false;
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: node.clientWidth, height }));
    // Without a server it cannot be fetched: the legend has the numbers, and the next page tries again.
    plotter().then((Plot) => {
      if (isOver) return;
      const options = optionsOf({ lines, text, mark, over, height, log, target, range, drawn, marked, width: node.clientWidth || 400, legend });
      plot.current = new Plot(options, newest.current, node);
      watcher.observe(node);
    }, () => undefined);
    return () => {
      isOver = true;
      watcher.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data.map((/** @type {any[]} */ each) => `${each.length}:${each.at(-1)}`).join(), times[0]]);
  return html`<figure class="chart" role="img" aria-label=${`${name}. ${lines.map((line) => `${line.words}: ${said(line.values, text)}`).join("; ")}`}>
    <div class="chart-legend" ref=${legend} aria-hidden="true">
      ${lines.map((line) => html`<span key=${line.words}><i class=${line.dash ? "dash" : ""} style=${{ color: `var(--${line.tone})` }}></i>${line.words} <b data-value>${said(line.values, text)}</b></span>`)}
      ${target != null ? html`<span><i class="dash" style=${{ color: "var(--text-faint)" }}></i>target <b>${text(target)}</b></span>` : null}
      <time class="chart-time"></time></div>
    <div ref=${box} class="chart-box" style=${{ height: `${height}px` }}></div>
  </figure>`;
}

/** The last known value, in words. @param {(number | null)[]} values @param {(value: number) => string} text */
function said(values, text) {
  const last = values.findLast((value) => value != null);
  return last == null ? "—" : text(last);
}

/** @param {any} given @returns {any} */
function optionsOf({ lines, text, mark, over, height, log, target, range, drawn, marked, width, legend }) {
  const [faint, grid] = [token("text-faint"), token("line")];
  const font = "11px Inter, system-ui, sans-serif";
  const axis = { stroke: faint, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width, height, padding: [8, 16, 0, 0], // right: half of a time that stands at the edge
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: Boolean(drawn.current), y: false, setScale: false } },
    scales: {
      x: { time: true, ...(range || over ? { range: () => windowOf(range, over) } : {}) },
      y: log ? { distr: 3, range: (/** @type {any} */ _plot, /** @type {number | null} */ low, /** @type {number | null} */ high) => spansOf(low, high, target) }
        : { range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max(high * 1.1, target ?? 0, 1e-9) || 1] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((each) => clockTime(each, marks)) },
      { ...axis, size: 44, space: 34, ...(log ? { incrs: SPANS, splits: marksOf, filter: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks } : {}), gap: 6, values: (/** @type {any} */ _, /** @type {(number | null)[]} */ marks) => marks.map((each) => (each == null ? "" : mark(each))) },
    ],
    series: [{}, ...lines.map((/** @type {Line} */ line) => ({
      label: line.words, stroke: token(line.tone), width: 1.75, spanGaps: false, dash: line.dash ? [4, 4] : undefined,
      fill: line.fill ? `color-mix(in oklab, ${token(line.tone)} 12%, transparent)` : undefined, points: { show: false },
    }))],
    hooks: {
      setSelect: [(/** @type {uPlot} */ plot) => select(plot, drawn.current)],
      setCursor: [(/** @type {uPlot} */ plot) => point(plot, legend.current, text)],
      draw: [(/** @type {uPlot} */ plot) => {
        if (target != null) level(plot, target, faint);
        for (const each of marked.current) flag(plot, each.at, token(MARKS[each.cause] ?? "text-faint"));
      }],
    },
  };
}

/** What the axis of time shows (s). @param {Range | null} range @param {number} over */
const windowOf = (range, over) => (range ? [range.from / 1_000, range.to / 1_000] : [(now() - over) / 1_000, now() / 1_000]);

/** Fewer pixels than this are a click, and no range. */
const LEAST = 6;

/** Somebody drew over a part: tell which, and take the mark away. @param {import("./ui.js").Plot} plot @param {((range: Range) => void) | undefined} brush */
function select(plot, brush) {
  const { left, width } = plot.select;
  if (!width) return;
  if (brush && width >= LEAST) brush({ from: Math.round(plot.posToVal(left, "x") * 1_000), to: Math.round(plot.posToVal(left + width, "x") * 1_000) });
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

/** The marks of a logarithmic axis (ms): about ten times the one before, and as people count time. */
const SPANS = [1, 10, 100, ...[1, 10, 60, 600, 3_600, 86_400, 864_000, 8_640_000].map((s) => s * 1_000)];

/** From the mark below everything to the mark above; what is 0 lies below the axis. @param {number | null} low @param {number | null} high @param {number | null} target */
function spansOf(low, high, target) {
  const known = [low, high, target].filter((each) => each != null && each > 0);
  const [least, most] = known.length ? [Math.min(.../** @type {number[]} */ (known)), Math.max(.../** @type {number[]} */ (known))] : [100, 100];
  return [SPANS.findLast((each) => each < least) ?? SPANS[0], SPANS.find((each) => each > most) ?? SPANS.at(-1)];
}

/** @param {any} _plot @param {number} _axis @param {number} low @param {number} high */
const marksOf = (_plot, _axis, low, high) => SPANS.filter((each) => each >= low && each <= high);

/** @param {number} second @param {number[]} marks The time of day; the seconds where marks are closer than a minute. */
const clockTime = (second, marks) => absolute(second * 1_000).slice(11, marks.length > 1 && marks[1] - marks[0] < 60 ? 19 : 16);

/** Show the values under the pointer in the legend. @param {import("./ui.js").Plot} plot @param {HTMLElement | null} legend @param {(value: number) => string} text */
function point(plot, legend, text) {
  if (!legend) return;
  const index = plot.cursor.idx;
  legend.querySelectorAll("[data-value]").forEach((node, i) => {
    const values = /** @type {(number | null)[]} */ (plot.data[i + 1] ?? []);
    const value = index == null ? undefined : values[index];
    node.textContent = index == null ? said(/** @type {any} */ (Array.from(values)), text) : value == null ? "—" : text(value);
  });
  const time = /** @type {HTMLElement} */ (legend.querySelector(".chart-time"));
  time.textContent = index == null ? "" : absolute(plot.data[0][index] * 1_000).slice(11, 19);
}

/** @param {import("./ui.js").Plot} plot @param {number} value @param {string} colour */
function level(plot, value, colour) {
  const y = plot.valToPos(value, "y", true), { left, width } = plot.bbox;
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  ctx.moveTo(left, y);
  ctx.lineTo(left + width, y);
  ctx.stroke();
  ctx.restore();
}

/** A line from top to bottom where something happened, with a head to find it by. @param {import("./ui.js").Plot} plot @param {number} at @param {string} colour */
function flag(plot, at, colour) {
  const x = Math.round(plot.valToPos(at / 1_000, "x", true)), { left, width, top, height } = plot.bbox;
  if (x < left || x > left + width) return;
  const { ctx } = plot, size = 4 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, top);
  ctx.lineTo(x, top + height);
  ctx.stroke();
  ctx.beginPath();
  ctx.moveTo(x - size, top);
  ctx.lineTo(x + size, top);
  ctx.lineTo(x, top + size * 1.4);
  ctx.fill();
  ctx.restore();
}

/** @param {{values: (number | null)[], tone?: string, words?: string}} props */
export function Sparkline({ values, tone = "accent", words = "" }) {
  const known = values.filter((value) => value != null);
  if (known.length < 2) return html`<svg class="spark" viewBox="0 0 100 28" aria-hidden="true"></svg>`;
  const high = Math.max(...known, 1e-9), step = 100 / (values.length - 1);
  const points = values.map((value, i) => (value == null ? null : `${(i * step).toFixed(1)},${(26 - (value / high) * 24).toFixed(1)}`)).filter(Boolean);
  return html`<svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" role=${words ? "img" : undefined} aria-label=${words || undefined} aria-hidden=${!words}>
    <polyline points=${points.join(" ")} style=${{ stroke: `var(--${tone})` }} /></svg>`;
}

/** As many bars as there are spans of time; nothing is drawn where nothing is. @param {{values: number[], tone?: string, words?: string}} props */
export function Bars({ values, tone = "accent", words = "" }) {
  const high = Math.max(...values, 1), step = 100 / Math.max(1, values.length);
  return html`<svg class="spark bars" viewBox="0 0 100 28" preserveAspectRatio="none" role=${words ? "img" : undefined} aria-label=${words || undefined} aria-hidden=${!words} style=${{ fill: `var(--${tone})` }}>
    <path class="bars-floor" d="M0 27.5H100" />
    ${values.map((value, i) => (value ? html`<rect key=${i} x=${(i * step + step * 0.12).toFixed(2)} width=${(step * 0.76).toFixed(2)} y=${(27 - (value / high) * 25).toFixed(1)} height=${((value / high) * 25 + 0.5).toFixed(1)} />` : null))}</svg>`;
}

/** The last 24 hours of something bad, by the hour. @param {{values: number[]}} props */
export const Day = ({ values }) => html`<span class="last-day" title="The last 24 hours, by the hour"><${Bars} values=${values} tone="bad" words=${`${count(values.reduce((sum, each) => sum + each, 0))} died within 24 h`} /></span>`;
