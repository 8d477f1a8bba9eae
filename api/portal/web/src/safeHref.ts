/**
 * safeHref returns an address only if it is http, https or a path of this server. What comes from a
 * BMC, a node or another operator must not become a script. Every href goes through here or hrefOf.
 */
export function safeHref(address: string | undefined): string | undefined {
  if (!address) return undefined;
  let url: URL;
  try {
    url = new URL(address, window.location.origin);
  } catch {
    return undefined;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return undefined;
  if (url.username || url.password) return undefined;
  return url.href;
}
