import { money } from "../../parts/money";

/** Currency is how amounts of a billing account are written. */
export interface Currency {
  currency?: string;
  exponent?: number;
}

/** amountText writes minor units as an amount, such as 19.93 USD. It writes nothing while the digits of the currency are not known. */
export const amountText = (minor: number | undefined, of: Currency) => of.exponent === undefined ? "" : money(minor, of.exponent, of.currency);

/** Money shows minor units as an amount with its currency. */
export function Money({ minor, of }: { minor: number | undefined; of: Currency }) {
  return <span className="amount">{amountText(minor, of)}</span>;
}
