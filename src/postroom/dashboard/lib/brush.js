/** Drawing over a part of something that lies from left to right, with whatever points. */
import { useState } from "./ui.js";

/** Less than this part of it is a click, and nothing was drawn. */
const LEAST = 0.01;

/**
 * @param {{current: HTMLElement | null}} box
 * @param {(from: number, to: number) => void} done both between 0 and 1
 * @returns {{drawn: [number, number] | null, on: Record<string, (event: PointerEvent) => void>}} what is drawn at present, and what the box listens to
 */
export function useBrush(box, done) {
  const [drawn, setDrawn] = useState(/** @type {[number, number] | null} */ (null));
  /** @param {PointerEvent} event */
  const place = (event) => {
    const { left, width } = /** @type {HTMLElement} */ (box.current).getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  /** @param {[number, number]} ends @returns {[number, number]} */
  const ordered = ([a, b]) => (a < b ? [a, b] : [b, a]);
  return {
    drawn: drawn && ordered(drawn),
    on: {
      onPointerDown: (event) => {
        if (event.button !== 0) return;
        /** @type {HTMLElement} */ (box.current).setPointerCapture(event.pointerId);
        setDrawn([place(event), place(event)]);
      },
      onPointerMove: (event) => drawn && setDrawn([drawn[0], place(event)]),
      onPointerUp: (event) => {
        if (!drawn) return;
        const [from, to] = ordered([drawn[0], place(event)]);
        setDrawn(null);
        if (to - from >= LEAST) done(from, to);
      },
      onPointerCancel: () => setDrawn(null),
    },
  };
}
