import { text } from "../text";
import { Dialog, showDialog } from "./Dialog";
import { TextField } from "./Field";

/** showSecret shows a value that the server gives out once. It is kept nowhere else. */
export function showSecret(title: string, secret: string | undefined): void {
  showDialog((close) => (
    <Dialog title={title} close={close}>
      {secret
        ? <TextField label={text.secret.label} help={text.secret.help} value={secret} readOnly spellcheck={false} autoComplete="off" onFocus={(e) => e.currentTarget.select()} />
        : <p class="warnings">{text.secret.replayed}</p>}
      <div class="buttons"><button type="button" onClick={close}>{text.secret.done}</button></div>
    </Dialog>
  ));
}
