import { setServerTime } from "../serverTime";
import { automation } from "../textAutomation";
import { call, handlers } from "./client";
import { ProblemError, toProblem } from "./problem";
import type { Problem } from "./problem";

/** Refusal is the body of an answer of the gRPC API that is an error. */
interface Refusal {
  code?: string;
  message?: string;
}

/** statuses are those of the errors that end a stream, which has begun with 200. */
const statuses: Record<string, number> = {
  invalid_argument: 400, failed_precondition: 409, unauthenticated: 401, permission_denied: 403, not_found: 404, aborted: 409, out_of_range: 410,
  resource_exhausted: 429, internal: 500, unavailable: 503, deadline_exceeded: 504,
};

/** problemOf makes a problem of an error of the gRPC API. What is a problem document already stays one. */
function problemOf(answer: unknown, response: Response): Problem | undefined {
  if (typeof answer !== "object" || answer === null || "title" in answer) return answer as Problem | undefined;
  const { code = "", message } = answer as Refusal;
  const wait = Number(response.headers.get("Retry-After"));
  return {
    status: response.ok ? statuses[code] ?? 500 : response.status, type: response.headers.get("Slipway-Problem") ?? "",
    title: automation.refused[code] ?? automation.failed, detail: message ?? "", request_id: response.headers.get("X-Request-Id") ?? undefined,
    retry_after_seconds: wait > 0 ? wait : undefined,
  };
}

function send(procedure: string, type: string, body: BodyInit, signal?: AbortSignal): Promise<Response> {
  return fetch("/slipway.v1." + procedure, { method: "POST", credentials: "same-origin", cache: "no-store", headers: { "Content-Type": type }, body, signal });
}

/**
 * ask makes a call of machines, plans or runs, such as "RunService/GetRun", in JSON and with the session's
 * cookie. It throws a ProblemError when the API refuses.
 */
export function ask<T>(procedure: string, message: object): Promise<T> {
  return call<T>(async () => {
    const response = await send(procedure, "application/json", JSON.stringify(message));
    setServerTime(response.headers.get("Date"));
    const answer: unknown = await response.json().catch(() => undefined);
    return response.ok ? { data: answer as T, response } : { error: problemOf(answer, response), response };
  });
}

const headBytes = 5; // of a message: its flags and its length
const endFlag = 2; // of the last message: how the stream ended
const mostBytes = 1 << 20; // a message with more is not one of this API
const silentAfter = 50_000; // milliseconds; the server sends a heartbeat every 20 s

/**
 * readStream asks for a stream and hands over its messages until the server ends it. It throws a
 * ProblemError when the server ends it with an error, and another error when it breaks off or signal
 * aborts it.
 */
export async function readStream<T>(procedure: string, message: object, take: (m: T) => void, signal: AbortSignal): Promise<void> {
  const body = new TextEncoder().encode(JSON.stringify(message));
  const framed = new Uint8Array(headBytes + body.length);
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, headBytes);
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  try {
    await readMessages(() => send(procedure, "application/connect+json", framed, own.signal), stop, take);
  } catch (error) {
    if (error instanceof ProblemError && error.problem.status === 401) handlers.signedOut();
    throw error;
  } finally {
    signal.removeEventListener("abort", stop);
    own.abort();
  }
}

async function readMessages<T>(open: () => Promise<Response>, stop: () => void, take: (m: T) => void): Promise<void> {
  const within = async <R,>(step: Promise<R>): Promise<R> => {
    const silent = setTimeout(stop, silentAfter); // a proxy may take the connection and never answer
    return step.finally(() => clearTimeout(silent));
  };
  const response = await within(open());
  if (!response.ok || !response.body) throw new ProblemError(toProblem(problemOf(await response.json().catch(() => undefined), response), response));
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let held = new Uint8Array(0);
  for (;;) {
    const { done, value } = await within(reader.read());
    if (done) throw new Error(automation.log.broke);
    const more = new Uint8Array(held.length + value.length);
    more.set(held);
    more.set(value, held.length);
    held = more;
    while (held.length >= headBytes) {
      const size = new DataView(held.buffer, held.byteOffset).getUint32(1);
      if (size > mostBytes) throw new Error(automation.log.broke);
      if (held.length < headBytes + size) break;
      const answer: unknown = JSON.parse(decoder.decode(held.subarray(headBytes, headBytes + size)));
      const ended = ((held[0] ?? 0) & endFlag) !== 0;
      held = held.slice(headBytes + size);
      if (!ended) {
        take(answer as T);
        continue;
      }
      const refusal = (answer as { error?: Refusal }).error;
      if (refusal) throw new ProblemError(toProblem(problemOf(refusal, response), response));
      return;
    }
  }
}
