import { signal } from "@preact/signals";
import { handlers } from "./api/client";
import { ProblemError } from "./api/problem";
import { hasPlatformRole, request } from "./api/session";
import type { PlatformRole, Session, SignIn } from "./api/session";
import { restartLive } from "./live";

export { oidcHref } from "./api/session";
export type { SignIn } from "./api/session";

/** session is undefined until it is read, null when nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

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

/**
 * mustLeaveToStepUp says whether a call that destroys something would leave the page for the provider:
 * what was filled in would be lost.
 */
export function mustLeaveToStepUp(now: number): boolean {
  const who = session.value;
  return who?.method === "oidc" && !(Date.parse(who.step_up_until ?? "") > now + 60_000);
}

/** hasRole says whether the session has this role or a higher one. */
export function hasRole(role: PlatformRole): boolean {
  return hasPlatformRole(session.value?.principal.roles ?? [], role);
}

handlers.signedOut = () => { if (session.value) session.value = null; };
