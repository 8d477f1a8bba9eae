import type { ComponentChildren } from "preact";
import { words } from "../text";
import { Facts } from "./Facts";

/** Spec shows the settings of a site, a profile or a SKU by name; what is not set is left out. */
export function Spec({ spec }: { spec: object | undefined }) {
  return <Facts facts={Object.entries(spec ?? {}).map(([name, value]) => [words(name), settingText(value)])} />;
}

function settingText(value: unknown): ComponentChildren {
  if (value === null || value === undefined || value === false) return undefined;
  if (typeof value === "boolean" || typeof value === "number") return value;
  if (typeof value === "string") return value.includes("\n") ? <pre>{value}</pre> : value;
  if (Array.isArray(value)) {
    if (value.length === 0) return undefined;
    if (value.every((v) => typeof v === "string" || typeof v === "number")) return value.join(", ");
  }
  return Object.keys(value as object).length === 0 ? undefined : <pre>{JSON.stringify(value, null, 2)}</pre>;
}
