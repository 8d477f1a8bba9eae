import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { setServerTime } from "../serverTime";
import { isStepUpProblem, ProblemError, toProblem } from "./problem";

/** Schemas are the types of the API's answers. */
export type Schemas = components["schemas"];

/** client calls the REST operations with the session cookie. */
export const client = createClient<paths>({ baseUrl: window.location.origin, credentials: "same-origin" });

client.use({ onResponse: ({ response }) => { setServerTime(response.headers.get("Date")); } });

/** Handlers say what happens when the session does not suffice; the session module sets them. */
export const handlers: { signedOut: () => void; stepUp: () => Promise<boolean> } = {
  signedOut: () => undefined,
  stepUp: () => Promise.resolve(false),
};

type Answer<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/**
 * call makes a request and returns the answer's body. It throws a ProblemError when the API refuses.
 * A request that needs a second sign-in is made again after it.
 */
export async function call<T>(request: () => Answer<T>): Promise<T> {
  try {
    return await callOnce(request);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    if (error.problem.status === 401) handlers.signedOut();
    if (!isStepUpProblem(error.problem) || !(await handlers.stepUp())) throw error;
  }
  return callOnce(request);
}

async function callOnce<T>(request: () => Answer<T>): Promise<T> {
  let answer: Awaited<Answer<T>>;
  try {
    answer = await request();
  } catch (error) {
    throw new ProblemError(toProblem(error, undefined));
  }
  if (!answer.response.ok) throw new ProblemError(toProblem(answer.error, answer.response));
  return answer.data as T;
}

/** newKey returns an Idempotency-Key: one for each thing that the operator asks for. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "portal-" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
