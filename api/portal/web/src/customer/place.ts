import { base, matchPath } from "../base";

/** customersBase is the path that the customers' pages are below. */
export const customersBase = base + "/my";

export { matchPath };
