import type { Schemas } from "../api/client";

/** Rate is what a node of the catalogue costs at the price that is in force. */
export type Rate = Schemas["Rate"];

/** ratesOf returns the prices of an offer, in the currencies that the customer pays in. */
export function ratesOf(offer: Schemas["CatalogueItem"]): Rate[] {
  return offer.prices ?? [];
}

/** isFree says whether nothing is charged, since no price is in force. */
export function isFree(offer: Schemas["CatalogueItem"]): boolean {
  return offer.charging === false;
}

/** withoutPrice says what it means that an offer has no price in the currency of the customer. */
export function withoutPrice(offer: Schemas["CatalogueItem"]): string {
  return isFree(offer) ? "nothing is charged: no price is in force" : "none in your currency, so that it cannot be ordered";
}

/** costOf returns what some hours cost in minor units, and never less than the minimum charge. */
export function costOf(rate: Rate, hours: number): number {
  return Math.max(rate.minimum_charge_minor ?? 0, Math.ceil((rate.rate_minor_per_hour ?? 0) * hours));
}
