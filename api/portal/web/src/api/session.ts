import { base } from "../base";
import { ProblemError, toProblem } from "./problem";

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

/** PlatformRole is a role of those who run the platform. Customers have none. */
export type PlatformRole = "viewer" | "operator" | "admin";

/** hasPlatformRole says whether one of the roles is this role or a higher one. */
export function hasPlatformRole(roles: string[], role: PlatformRole): boolean {
  const order = ["viewer", "operator", "admin"];
  return roles.some((r) => order.indexOf(r) >= order.indexOf(role));
}

/** request calls an operation on sessions, and throws a ProblemError when it is refused. */
export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
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

/** oidcHref returns the address that signs in with the provider, and comes back to this place. */
export function oidcHref(way: "sign-in" | "step-up"): string {
  const here = window.location.pathname + window.location.search;
  return `${base}/oidc/${way}?return=${encodeURIComponent(here)}`;
}
