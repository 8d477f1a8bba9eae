import { Button, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import type { FormEvent } from "react";
import { oidcHref } from "../api/session";
import { Failed } from "./parts/Failed";
import { readSignIn, signIn } from "./session";

/** SignIn asks who it is. It keeps the address, so that the user arrives where they wanted. */
export function SignIn() {
  const ways = useQuery({ queryKey: ["sign-in"], queryFn: readSignIn });
  // The document is loaded again: the first script chooses the application by the roles.
  const send = useMutation({ mutationFn: signIn, onSuccess: () => window.location.reload() });
  useEffect(() => { document.title = "Sign in to Slipway · Slipway"; }, []);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget).get("token");
    if (!send.isPending) send.mutate(typeof token === "string" ? token.trim() : "");
  };
  return (
    <main className="alone">
      <h1>Sign in to Slipway</h1>
      {ways.isError && <Failed error={ways.error} again={() => void ways.refetch()} />}
      {ways.data?.oidc && <p><Button component="a" href={oidcHref("sign-in")}>Sign in with your organisation</Button></p>}
      {ways.data?.oidc && ways.data.token && <Text c="dimmed">or with an API token</Text>}
      {ways.data?.token && (
        <form onSubmit={submit}>
          <Stack>
            <TextInput type="password" name="token" label="API token" description="It is exchanged for a session and is not kept in the browser." autoComplete="off" required withAsterisk={false} maxLength={4096} spellCheck={false} />
            {send.isError && <Failed error={send.error} />}
            <div><Button type="submit" aria-disabled={send.isPending}>Sign in</Button></div>
          </Stack>
        </form>
      )}
      {ways.data && !ways.data.oidc && !ways.data.token && <p>This server offers no way to sign in here.</p>}
    </main>
  );
}
