import { useQuery } from "@tanstack/react-query";
import type { UseQueryResult } from "@tanstack/react-query";
import { ProblemError } from "../api/problem";
import { request } from "../api/session";
import type { Session, SignIn } from "../api/session";

async function readSession(): Promise<Session | null> {
  try {
    return await request<Session>("GET", "/session");
  } catch (error) {
    if (error instanceof ProblemError && error.problem.status === 401) return null;
    throw error;
  }
}

/** useSession returns who is signed in, or null for nobody. */
export function useSession(): UseQueryResult<Session | null> {
  return useQuery({ queryKey: ["session"], queryFn: readSession, staleTime: 60_000 });
}

/** readSignIn reads which ways to sign in the server offers. */
export const readSignIn = () => request<SignIn>("GET", "/sign-in");

/** signIn begins a session with an API token. */
export const signIn = (token: string) => request<Session>("POST", "/session", { token });

/** signOut ends the session. */
export const signOut = () => request<undefined>("DELETE", "/session");

/** stepUp proves the token again, for actions that cannot be undone. */
export const stepUp = (token: string) => request<Session>("POST", "/step-up", { token });
