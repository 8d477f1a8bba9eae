import { refuse } from "../api/problem";
import { badAmount } from "../textProblem";

/** money writes minor units as an amount with its currency: 1993 is 19.93 USD. */
export function money(minor: number | undefined, exponent: number | undefined, currency: string | undefined): string {
  if (minor === undefined) return "";
  const digits = exponent ?? 0;
  const whole = String(Math.abs(minor)).padStart(digits + 1, "0");
  const at = whole.length - digits;
  const amount = digits > 0 ? `${whole.slice(0, at)}.${whole.slice(at)}` : whole;
  return [`${minor < 0 ? "-" : ""}${amount}`, currency].filter(Boolean).join(" ");
}

/** minorOf reads an amount such as -19.93 as minor units. It refuses more digits than the currency has. */
export function minorOf(amount: string | undefined, exponent: number | undefined, label: string): number {
  const digits = exponent ?? 0;
  const found = /^(-?)(\d{1,10})(?:\.(\d+))?$/.exec(amount ?? "");
  const fraction = found?.[3] ?? "";
  if (!found || fraction.length > digits) refuse(badAmount(label, digits));
  const minor = Number((found[2] ?? "") + fraction.padEnd(digits, "0"));
  return found[1] === "-" && minor !== 0 ? -minor : minor;
}
