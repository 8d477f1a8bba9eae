import type { components } from "./schema";
import { problemText } from "../textProblem";

/** Problem is a problem document (RFC 9457) of the API. */
export type Problem = components["schemas"]["Problem"];

/** ProblemError is the error of a request that failed. */
export class ProblemError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.title ?? problemText.unknown);
  }
}

/** refuse stops a form that cannot be sent. */
export function refuse(detail: string): never {
  throw new ProblemError({ status: 422, title: problemText.correct, detail });
}

/** toProblem makes a problem of whatever came instead of an answer. */
export function toProblem(error: unknown, response: Response | undefined): Problem {
  if (error instanceof ProblemError) return error.problem;
  if (!response) return { status: 0, title: problemText.noAnswer, detail: problemText.noAnswerDetail };
  if (typeof error === "object" && error !== null && "title" in error) return { status: response.status, ...(error as Problem) };
  return { status: response.status, title: problemText.unknown, detail: problemText.unknownDetail(response.status) };
}

/** asProblem returns the problem of anything that was thrown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof ProblemError) return error.problem;
  return { status: 0, title: problemText.inPortal, detail: error instanceof Error ? error.message : String(error) };
}

/** isStepUpProblem says whether the operator must sign in again before the request. */
export function isStepUpProblem(problem: Problem): boolean {
  return /step[-_]up[-_]required$/.test(problem.type ?? "");
}

/** isKeyReused says whether the key of the request belongs to another one, which may have been carried out. */
export function isKeyReused(problem: Problem): boolean {
  return /idempotency-key-reused$/.test(problem.type ?? "");
}

/** isFinal says whether the server has decided: the same request would be refused again. */
export function isFinal(problem: Problem): boolean {
  const status = problem.status ?? 0;
  const isServed = /idempotency-in-flight$/.test(problem.type ?? ""); // the same request is being carried out now
  return status >= 400 && status < 500 && status !== 401 && status !== 408 && status !== 429 && !isStepUpProblem(problem) && !isServed;
}
