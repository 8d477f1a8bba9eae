import type { Schemas } from "../api/client";

/** Rate is what a node of the catalogue costs at the price that is in force. */
export interface Rate {
  currency: string;
  exponent: number;
  rate_minor_per_hour: number;
  /** What an allocation costs at least once it is active. */
  minimum_charge_minor: number;
  /** What is held back of the balance while it runs. */
  hold_minor: number;
}

/** Priced are the fields of an offer that an API with prices in its catalogue answers. */
interface Priced {
  charging?: boolean;
  prices?: Rate[];
}

/** ratesOf returns the prices of an offer, in the currencies that the customer pays in. */
export function ratesOf(offer: Schemas["CatalogueItem"]): Rate[] {
  return (offer as Priced).prices ?? [];
}

/** isFree says whether nothing is charged, since no price is in force. */
export function isFree(offer: Schemas["CatalogueItem"]): boolean {
  return (offer as Priced).charging === false;
}

/** costOf returns what some hours cost in minor units, and never less than the minimum charge. */
export function costOf(rate: Rate, hours: number): number {
  return Math.max(rate.minimum_charge_minor, Math.ceil(rate.rate_minor_per_hour * hours));
}
