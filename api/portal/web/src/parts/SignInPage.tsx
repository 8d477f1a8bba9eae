import { useEffect, useState } from "preact/hooks";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { oidcHref, readSignIn, signIn } from "../session";
import type { SignIn } from "../session";
import { text } from "../text";
import { TextField } from "./Field";
import { ProblemText } from "./ProblemText";

/** SignInPage asks who it is. It keeps the address, so that the operator arrives where they wanted. */
export function SignInPage() {
  const [ways, setWays] = useState<SignIn>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const readWays = () => { readSignIn().then((w) => { setWays(w); setProblem(undefined); }, (error: unknown) => setProblem(asProblem(error))); };
  useEffect(() => {
    document.title = `${text.session.title} · ${text.product}`;
    readWays();
  }, []);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (busy || !(event.currentTarget instanceof HTMLFormElement)) return;
    const token = new FormData(event.currentTarget).get("token");
    setBusy(true);
    setProblem(undefined);
    try {
      await signIn(typeof token === "string" ? token.trim() : "");
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  return (
    <main class="sign-in">
      <h1>{text.session.title}</h1>
      <ProblemText problem={problem} again={ways ? undefined : readWays} />
      {ways?.oidc && <p><a class="button primary" href={oidcHref("sign-in")}>{text.session.oidc}</a></p>}
      {ways?.oidc && ways.token && <p class="quiet">{text.session.or}</p>}
      {ways?.token && (
        <form class="stack" onSubmit={(e) => void submit(e)}>
          <TextField name="token" type="password" label={text.session.token} help={text.session.tokenHelp} autoComplete="off" required maxLength={4096} spellcheck={false} />
          <div class="buttons"><button type="submit" class="primary" aria-disabled={busy}>{text.session.signIn}</button></div>
        </form>
      )}
      {ways && !ways.oidc && !ways.token && <p>{text.session.noWay}</p>}
    </main>
  );
}
