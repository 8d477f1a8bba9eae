// Control characters, and those that reorder or hide text. Tabs and line ends are kept.
const hidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]/g;

/**
 * showHidden writes each such character in texts as its code, so that the name of one node cannot look
 * like that of another. Only what is shown is changed; the value of a field stays as it is.
 */
export function showHidden(children: unknown): unknown {
  if (typeof children === "string") return children.replace(hidden, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  if (Array.isArray(children)) return children.map(showHidden);
  return children;
}
