// The texts of requests that failed, which the pages of operators and of customers share.

export const problemText = {
  correct: "Correct the form",
  unknown: "The request failed",
  unknownDetail: (status: number) => `The server answered with status ${status} and no explanation. Try again; if it happens again, read the server's log.`,
  noAnswer: "The server does not answer",
  noAnswerDetail: "Check the network between this browser and Slipway, then try again.",
  inPortal: "The portal has a fault",
  notLoaded: "This page of the portal did not load",
  notLoadedDetail: "The server may have been updated since this tab was opened, or it does not answer. Load the page again.",
  requestId: "Request id",
  allowed: "Allowed now",
  retryAfter: (seconds: number) => `Try again in ${seconds} s.`,
  existing: "In the way",
  again: "Try again",
};

/** badAmount says how an amount is written in a currency with this many digits after the point. */
export const badAmount = (label: string, digits: number) => `${label}: write a number with at most ${digits} digits after the point, such as ${digits > 0 ? `19.${"9".repeat(digits)}` : "19"}.`;
