// The texts of the pages of money. They are loaded with those pages.

export const billing = {
  amount: "Amount", currency: "Currency", allocation: "Allocation",

  balance: "Balance", posted: "Posted balance", held: "Held back for allocations", available: "Available", since: "Since", low: "Low at and below", depleted: "Depleted at and below",
  rearm: "A new notice above", grace: "Seconds until the release", released: "Allocations are released at", state: "State",
  uncharged: "Nothing is charged: this installation has no price in force. The state means nothing.",
  heldHelp: "What is held back does not count for the state. A new allocation needs an hour of its price available.",

  thresholds: "Set the thresholds", thresholdsHelp: "They count from the next posting on. Left empty, a threshold is that of the policy.", graceField: "Seconds after depletion until allocations are released",

  adjust: "Book an adjustment", adjustHelp: "It is a transaction of its own and is not undone; another one corrects it. Those who pay for the project see the reason.",
  adjustAmount: (currency: string) => `Amount in ${currency}`, adjustAmountHelp: "A negative amount, such as -5.00, is taken from the balance.",
  adjustProject: "Project on whose statement it stands", adjustProjectHelp: "Its id. Left empty, it belongs to the whole account.",
  adjustConfirm: "The amount is meant, even if it is large", adjustConfirmHelp: "Needed above the policy amount of the installation.",
  booked: (amount: string) => `${amount} is booked.`,

  ledger: "Ledger", ledgerHelp: "What was charged and credited, newest first. Top-ups and adjustments of the whole billing account belong to no project.",
  postedAt: "Posted", kind: "Kind", until: "For the time until", reason: "Reason", after: "Balance after", actor: "Who",
  none: "Nothing was posted.",

  costPerDay: "Cost per day", from: "From", to: "To", dayHelp: "Such as 2026-11-01",
  chart: (from: string, to: string, total: string) => `Cost per day (UTC) from ${from} to ${to}: ${total} in all`, noCost: "Nothing was charged in these days.",
  day: "Day", time: "Charged for", cost: "Cost", segments: "Allocations by rate, newest first", rate: "Rate an hour", start: "From", end: "Until", billed: "Charged until",
  noUsage: "The project has used nothing.", figures: "The same figures as a table",

  statement: "Statement", month: "Month", monthHelp: "In UTC, such as 2026-11", total: "Total", final: "Final", open: "no: the month has not ended",
  statementHelp: "What was posted in the month, summed by allocation and kind. A charge that is posted after the month is in the next statement.",
  transactions: "Transactions", first: "First", last: "Last", csv: "Download as CSV", saved: (name: string) => `${name} is saved.`,
  cut: "The statement was cut short", cutDetail: "It lacks its end. Read it again.", whole: "the project as a whole",

  createPrice: "Set a price", noPrices: "There is no price. Nothing is charged until the first one is set.",
  priceIntro: "A price begins at least an hour ahead and is never changed: the next one ends it. What runs keeps a lower rate for seven days.",
  planIntro: "Make the dry run first. Nothing is changed until you set the price.", valid: "Valid from", validUntil: "Valid until", setBy: "Set by",
  rateField: "Minor units for each hour of one node", rateHelp: "1993 is 19.93 USD. The dry run shows the amount.", validFrom: "Begins",
  validFromHelp: "Such as 2026-12-01T00:00:00Z. Left empty: in 65 minutes, or at once for the first price of the SKU.",
  plan: "Dry run", make: "Make the dry run", makeAgain: "Make it again", before: "Price before", factor: "Times the price before", affected: "Allocations that run or wait",
  affectedHelp: "A higher price reaches those that run seven days after it begins.", noneAffected: "No allocation is concerned.", more: "There are more than are listed.",
  started: "Runs since", confirm: "This price is meant", setPrice: (sku: string) => `Set the price of ${sku}`, set: "The price is set.", notActive: "not active yet",

  resume: "Let releases go on", resumeHelp: "When too many accounts were depleted at once, or more than an hour was charged at once, nothing is released until an operator has looked at clocks, prices and charges. This ends that: all that is depleted or past its expiry is released. After a clock that was ahead, the first time lets charges go on from now, and the second time the releases.",
};
