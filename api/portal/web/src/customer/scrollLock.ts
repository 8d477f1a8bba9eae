// What the build puts in place of the package react-remove-scroll, which Mantine's dialogs are wrapped
// in: it locks the scrolling with style elements, which the policy of the pages forbids. style.css
// locks it instead.
import type { ReactNode } from "react";

const Wrapper = ({ children }: { children: ReactNode }) => children;

/** RemoveScroll shows what it wraps. The names of its classes stand for nothing. */
export const RemoveScroll = Object.assign(Wrapper, { classNames: { fullWidth: "", zeroRight: "" } });
