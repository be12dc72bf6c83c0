/**
 * The only file that knows what comes from npm: Preact, htm and uPlot. Everybody else imports from here.
 */
import { Fragment, h, options, render } from "../vendor/preact.js";
import {
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import uPlot from "../vendor/uplot.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Element */
/** @typedef {(props: any) => any} Component */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
const html = htm.bind(/** @type {any} */ (h));

export {
  Fragment, html, options, render, uPlot,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
};
