/** Settings are a value of JSON: what a request holds below a name. */
type Settings = string | number | boolean | null | undefined | Settings[] | { [name: string]: Settings };

/** partsOf splits a path such as spec.initrds.0.url. */
const partsOf = (path: string) => path.split(".");

const isHolder = (of: Settings): of is Settings[] | { [name: string]: Settings } => typeof of === "object" && of !== null;

/** valueAt returns what stands at a path, or undefined. */
export function valueAt(of: unknown, path: string): unknown {
  let at = of as Settings;
  for (const part of partsOf(path)) {
    if (!isHolder(at)) return undefined;
    at = (at as Record<string, Settings>)[part];
  }
  return at;
}

/** withValue returns a copy with a value at a path; lists and objects on the way are made. */
export function withValue(of: unknown, path: string, value: unknown): unknown {
  const [part = "", ...rest] = partsOf(path);
  const held = of as Settings;
  const copy = (Array.isArray(held) ? [...held] : isHolder(held) ? { ...held } : /^\d+$/.test(part) ? [] : {}) as Record<string, unknown>;
  copy[part] = rest.length === 0 ? value : withValue(copy[part], rest.join("."), value);
  return copy;
}

/** without returns a copy without what stands at a path, and without what that leaves empty. */
export function without(of: unknown, path: string): unknown {
  if (valueAt(of, path) === undefined) return of;
  const [part = "", ...rest] = partsOf(path);
  if (Array.isArray(of)) { // the place of the others must stay
    const copy = [...(of as unknown[])];
    copy[Number(part)] = rest.length === 0 ? {} : without(copy[Number(part)], rest.join(".")) ?? {};
    return copy.every((item) => isHolder(item as Settings) && Object.keys(item as object).length === 0) ? undefined : copy;
  }
  const copy = { ...(of as Record<string, unknown>) };
  const left = rest.length === 0 ? undefined : without(copy[part], rest.join("."));
  if (left === undefined) delete copy[part];
  else copy[part] = left;
  return Object.keys(copy).length === 0 ? undefined : copy;
}

/** pathOf returns the path that a place in a problem document names, such as body.spec.initrds[0].url. */
export function pathOf(named: string): string {
  return named.replace(/^body\./, "").replace(/\[(\d+)\]/g, ".$1");
}
