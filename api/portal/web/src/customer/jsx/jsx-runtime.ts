// The JSX functions of React, for the customers' pages: every text passes here on its way to the page,
// wherever it comes from, and characters that hide or reorder text are shown as their codes.
import type { ElementType, Key } from "react";
import { Fragment, jsx as make, jsxs as makeMany } from "react/jsx-runtime";
import { showHidden } from "../../parts/hidden";

export { Fragment };
export type { JSX } from "react";

const shownProps = ["children", "label", "title", "description", "error"];

function shown(props: unknown): unknown {
  const out = { ...(props as Record<string, unknown>) };
  for (const name of shownProps) if (name in out) out[name] = showHidden(out[name]);
  return out;
}

export const jsx = (type: ElementType, props: unknown, key?: Key) => make(type, shown(props), key);
export const jsxs = (type: ElementType, props: unknown, key?: Key) => makeMany(type, shown(props), key);
