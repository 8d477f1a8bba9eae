import { useState } from "preact/hooks";
import { handlers } from "../api/client";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { oidcHref, session, stepUp } from "../session";
import { text } from "../text";
import { Dialog, showDialog } from "./Dialog";
import { TextField } from "./Field";
import { ProblemText } from "./ProblemText";

let asking: Promise<boolean> | undefined;

/** askStepUp asks for a second sign-in. It returns whether the operator gave it. */
export function askStepUp(): Promise<boolean> {
  asking ??= new Promise<boolean>((resolve) => {
    let proven = false;
    showDialog((close) => <StepUpForm close={close} proven={() => { proven = true; close(); }} />, () => {
      asking = undefined;
      resolve(proven);
    });
  });
  return asking;
}

handlers.stepUp = askStepUp;

function StepUpForm({ close, proven }: { close: () => void; proven: () => void }) {
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (busy || !(event.currentTarget instanceof HTMLFormElement)) return;
    const token = new FormData(event.currentTarget).get("token");
    setBusy(true);
    setProblem(undefined);
    try {
      await stepUp(typeof token === "string" ? token.trim() : "");
      proven();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  if (session.value?.method === "oidc") {
    return (
      <Dialog title={text.session.stepUpTitle} close={close}>
        <p>{text.session.stepUpOidc}</p>
        <div class="buttons"><a class="button primary" href={oidcHref("step-up")}>{text.session.stepUpGo}</a><button type="button" onClick={close}>{text.cancel}</button></div>
      </Dialog>
    );
  }
  return (
    <Dialog title={text.session.stepUpTitle} close={close}>
      <form class="stack" onSubmit={(e) => void submit(e)}>
        <p>{text.session.stepUpToken}</p>
        <TextField name="token" type="password" label={text.session.token} autoComplete="off" required maxLength={4096} spellcheck={false} />
        <ProblemText problem={problem} />
        <div class="buttons">
          <button type="submit" class="primary" aria-disabled={busy}>{text.session.stepUp}</button>
          <button type="button" onClick={close}>{text.cancel}</button>
        </div>
      </form>
    </Dialog>
  );
}
