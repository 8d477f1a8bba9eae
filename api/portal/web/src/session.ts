import { signal } from "@preact/signals";
import { handlers } from "./api/client";
import { ProblemError, toProblem } from "./api/problem";
import { restartLive } from "./live";
import { base } from "./router";

/** Session is the answer of GET /portal/session. */
export interface Session {
  principal: { id: string; name: string; roles: string[] };
  method: "oidc" | "token";
  auth_time: string;
  idle_until: string;
  ends_at: string;
  step_up_until: string | null;
  sign_in: SignIn;
  /** The address of the Temporal Web UI, or "". */
  temporal_ui: string;
}

/** SignIn says which ways to sign in the server offers. */
export interface SignIn {
  oidc: boolean;
  token: boolean;
}

/** session is undefined until it is read, null when nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(base + path, {
      method, credentials: "same-origin", cache: "no-store",
      headers: body === undefined ? { Accept: "application/json" } : { Accept: "application/json", "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    throw new ProblemError(toProblem(error, undefined));
  }
  const answer: unknown = response.status === 204 ? undefined : await response.json().catch(() => undefined);
  if (!response.ok) throw new ProblemError(toProblem(answer, response));
  return answer as T;
}

/** readSession reads who is signed in. It throws when the server does not answer. */
export async function readSession(): Promise<void> {
  try {
    session.value = await request<Session>("GET", "/session");
  } catch (error) {
    if (!(error instanceof ProblemError) || error.problem.status !== 401) throw error;
    session.value = null;
  }
}

/** readSignIn reads which ways to sign in the server offers. */
export function readSignIn(): Promise<SignIn> {
  return request<SignIn>("GET", "/sign-in");
}

/** signIn begins a session with an API token. */
export async function signIn(token: string): Promise<void> {
  session.value = await request<Session>("POST", "/session", { token });
  restartLive();
}

/** signOut ends the session. */
export async function signOut(): Promise<void> {
  await request<undefined>("DELETE", "/session");
  session.value = null;
  restartLive();
}

/** stepUp proves the token again, for actions that cannot be undone. */
export async function stepUp(token: string): Promise<void> {
  session.value = await request<Session>("POST", "/step-up", { token });
}

/** oidcHref returns the address that signs in with the provider, and comes back to this place. */
export function oidcHref(way: "sign-in" | "step-up"): string {
  const here = window.location.pathname + window.location.search;
  return `${base}/oidc/${way}?return=${encodeURIComponent(here)}`;
}

/**
 * mustLeaveToStepUp says whether a call that destroys something would leave the page for the provider:
 * what was filled in would be lost.
 */
export function mustLeaveToStepUp(now: number): boolean {
  const who = session.value;
  return who?.method === "oidc" && !(Date.parse(who.step_up_until ?? "") > now + 60_000);
}

/** hasRole says whether the session has this role or a higher one. */
export function hasRole(role: "viewer" | "operator" | "admin"): boolean {
  const order = ["viewer", "operator", "admin"];
  const roles = session.value?.principal.roles ?? [];
  return roles.some((r) => order.indexOf(r) >= order.indexOf(role));
}

handlers.signedOut = () => { if (session.value) session.value = null; };
