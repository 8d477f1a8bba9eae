// The texts of the pages of payments. They are loaded with those pages.

export const payments = {
  one: "Payment", requested: "Asked for", received: "Received by Stripe", credited: "Credited", refunded: "Refunded", left: "Left to refund", status: "State", paid: "Money",
  created: "Asked for at", completed: "Page finished", creditedAt: "Credited at", expires: "Page closes", by: "Asked for by", page: "Payment page", open: "Open the payment page",
  intro: "What customers add to their balances through Stripe. Nothing is credited that Stripe has not confirmed.",
  none: "Nobody has asked for a payment.", stuck: "Stuck", stuckOnly: "Only stuck ones", stuckHelp: "Asked for over an hour ago and not finished, paid and not credited for over an hour, or failed without a decision",
  entry: "Ledger transaction", suspense: "Suspense transaction", stripe: "Checkout session at Stripe", intent: "Payment at Stripe", attempts: "Failed credits", error: "Last error",
  failure: "Why it failed", resolution: "Decision", reason: "Reason", resolvedBy: "Decided by", test: "Stripe's test mode: no money moves", mode: "Mode", live: "live",

  topUp: "Top up", topUpHelp: "A payment page of Stripe is made for the payer. The balance gains the amount when Stripe has it.",
  amount: (currency: string) => `Amount in ${currency}`, amountLabel: "Amount",
  check: "Compare with Stripe", checked: (status: string) => `It is ${status}.`,
  waiting: "You came from the payment page. This waits until the payment is credited, which takes some seconds.", landed: (amount: string) => `${amount} are credited.`,
  projectHelp: "What was asked for in this project, newest first. It adds to the balance of the billing account, from which all its projects are paid.",

  reconcile: "Reconcile", reconcileHelp: "A job compares the payment with Stripe, and credits it when it is paid.", reconciled: (job: string, status: string) => `Job ${job} is ${status}.`,
  resolve: "Decide", resolveHelp: "Credit gives what was paid to the balance. Refund returns it to the payer. Write-off books it away. It is not undone. Those who pay for the project see the reason.",
  resolutions: { credit: "Credit", refund: "Refund", write_off: "Write off" }, resolved: "The decision is carried out.",
  refund: "Refund", refundHelp: "The amount is taken from the balance at once, and comes back when Stripe refuses the refund. Those who pay for the project see the reason.",
  refundAsked: (state: string) => `The refund is ${state}.`, refunds: "Refunds", noRefunds: "Nothing was refunded.", origin: "Made by",
  disputes: "Disputes", noDisputes: "No bank has taken it back.", opened: "Opened", closed: "Closed", cleared: "Cleared",
  clear: "Let the account go on", clearHelp: "The billing account of a lost dispute gets no new allocation until then.",
};
