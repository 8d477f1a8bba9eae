import { Button, Stack, Text } from "@mantine/core";
import { useRef } from "react";
import type { ReactNode } from "react";
import { oidcHref } from "../../api/session";
import { serverNow } from "../../serverTime";
import { useSession } from "../session";

const margin = 60_000; // milliseconds that filling in a form may take

/**
 * StepUpFirst offers the second sign-in before a form whose call needs one: it leaves the page for the
 * identity provider, and what was filled in would be lost. Whoever signed in with a token is asked later.
 */
export function StepUpFirst({ needed, children }: { needed: boolean | undefined; children: ReactNode }) {
  const session = useSession().data;
  const isShown = useRef(false); // a form that is there stays, with what was filled in and what was answered
  if (!needed || (session && session.method !== "oidc") || Date.parse(session?.step_up_until ?? "") > serverNow() + margin) isShown.current = true;
  if (isShown.current || !session) return children;
  return (
    <Stack>
      <Text>This needs a second sign-in, so that nobody else does it from your browser. You come back to this page, and the sign-in then counts for ten minutes.</Text>
      <div><Button component="a" href={oidcHref("step-up")} data-autofocus>Sign in again to continue</Button></div>
    </Stack>
  );
}
