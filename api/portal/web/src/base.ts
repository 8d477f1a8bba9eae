/** base is the path that the portal is served under. */
export const base = "/portal";

/** matchPath returns the parameters of a pattern such as /nodes/:id, or undefined if it does not match. */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const want = pattern.split("/");
  const have = path.split("/");
  if (want.length !== have.length) return undefined;
  const params: Record<string, string> = {};
  for (const [i, part] of want.entries()) {
    const text = have[i] ?? "";
    if (part.startsWith(":")) {
      try {
        params[part.slice(1)] = decodeURIComponent(text);
      } catch {
        return undefined; // a broken escape matches no page
      }
    } else if (part !== text) return undefined;
  }
  return params;
}
