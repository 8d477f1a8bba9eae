import { refuse } from "../../api/problem";

/** tagsOf reads one KEY=VALUE on each line. */
export function tagsOf(lines: string | undefined): Record<string, string> {
  const tags: Record<string, string> = {};
  for (const line of (lines ?? "").split("\n").map((l) => l.trim()).filter((l) => l !== "")) {
    const at = line.indexOf("=");
    if (at < 1) refuse(`Tags: write "${line}" as KEY=VALUE.`);
    tags[line.slice(0, at)] = line.slice(at + 1);
  }
  return tags;
}

/** tagsText writes tags with a text between them. */
export const tagsText = (tags: Record<string, string> | undefined, between: string) => Object.entries(tags ?? {}).map(([k, v]) => `${k}=${v}`).join(between);
