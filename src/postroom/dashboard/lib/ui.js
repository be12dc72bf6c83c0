/**
 * The only file that knows what comes from npm: Preact, htm and uPlot. Everybody else imports from here.
 */
import { Fragment, h, options, render } from "../vendor/preact.js";
import {
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Element */
/** @typedef {(props: any) => any} Component */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
const html = htm.bind(/** @type {any} */ (h));

/** @typedef {InstanceType<Awaited<ReturnType<typeof plotter>>>} Plot */
/** What draws charts, fetched with the first one: numbers and words need not wait for it. */
export const plotter = () => import("../vendor/uplot.js").then((found) => found.default);

export {
  Fragment, html, options, render,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
};
