import { Button, Group, Modal, Stack, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { FormEvent } from "react";
import { handlers } from "../api/client";
import { oidcHref } from "../api/session";
import { Failed } from "./parts/Failed";
import { stepUp } from "./session";

/** StepUp asks for a second sign-in whenever a call needs one, and lets the call go on. */
export function StepUp({ method }: { method: "oidc" | "token" }) {
  const [resolve, setResolve] = useState<(proven: boolean) => void>();
  const send = useMutation({ mutationFn: stepUp, onSuccess: () => end(true) });
  useEffect(() => {
    handlers.stepUp = () => new Promise((done) => setResolve(() => done));
    return () => { handlers.stepUp = () => Promise.resolve(false); };
  }, []);
  const end = (proven: boolean) => {
    resolve?.(proven);
    setResolve(undefined);
    send.reset();
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget).get("token");
    if (!send.isPending) send.mutate(typeof token === "string" ? token.trim() : "");
  };
  return (
    <Modal opened={resolve !== undefined} onClose={() => end(false)} title="Confirm your identity to continue" closeButtonProps={{ "aria-label": "Close" }}>
      {method === "oidc" ? (
        <Stack>
          <p>Sign in again with your organisation. You come back to this page; what you have typed is not kept. The sign-in counts for ten minutes.</p>
          <Group><Button component="a" href={oidcHref("step-up")}>Sign in again</Button><Button variant="default" onClick={() => end(false)}>Cancel</Button></Group>
        </Stack>
      ) : (
        <form onSubmit={submit}>
          <Stack>
            <p>Enter the API token that you signed in with.</p>
            <TextInput type="password" name="token" label="API token" autoComplete="off" required withAsterisk={false} maxLength={4096} data-autofocus />
            {send.isError && <Failed error={send.error} />}
            <Group><Button type="submit">Confirm</Button><Button variant="default" onClick={() => end(false)}>Cancel</Button></Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
