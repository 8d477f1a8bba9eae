import { Button, Group, Modal, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { FormEvent, ReactNode, RefObject } from "react";
import { newKey } from "../../api/client";
import { asProblem, isFinal } from "../../api/problem";
import { Failed } from "./Failed";
import { StepUpFirst } from "./StepUpFirst";

/** Given is what was filled in, by the names of the fields. A field of a ticked box is "on". */
export type Given = Record<string, string>;

interface SendProps {
  /** What the button says; it names the action. */
  button: string;
  danger?: boolean;
  children?: ReactNode;
  /** Sends it with an idempotency key, and returns what to tell. */
  send: (given: Given, key: string) => Promise<ReactNode>;
  done?: () => void;
  cancel?: () => void;
  /** Keeps the key of a form that is closed before it is known whether the server has acted. */
  kept?: RefObject<string>;
}

/**
 * useSend sends with a key that stays the same while it is not known whether the server has acted, and
 * then reads every page again.
 */
function useSend(send: SendProps["send"], done?: () => void, kept?: RefObject<string>) {
  const queries = useQueryClient();
  const own = useRef("");
  const key = kept ?? own;
  return useMutation({
    mutationFn: (given: Given) => send(given, (key.current ||= newKey())),
    onSuccess: async () => {
      key.current = "";
      done?.();
      await queries.invalidateQueries();
    },
    onError: (error) => { if (isFinal(asProblem(error))) key.current = ""; },
  });
}

/** SendForm is a form with one button. It tells what came of it below the button. */
export function SendForm({ button, danger, children, send, done, cancel, kept }: SendProps) {
  const form = useRef<HTMLFormElement>(null);
  const sending = useSend(send, () => {
    form.current?.reset();
    done?.();
  }, kept);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (sending.isPending) return;
    const given: Given = {};
    for (const [name, value] of new FormData(event.currentTarget)) if (typeof value === "string") given[name] = value.trim();
    sending.mutate(given);
  };
  return (
    <form onSubmit={submit} ref={form} className="form">
      <Stack>
        {children}
        {sending.isError && <Failed error={sending.error} />}
        <Group>
          <Button type="submit" color={danger ? "red" : undefined} aria-disabled={sending.isPending}>{sending.isPending ? "Sending" : button}</Button>
          {cancel && <Button variant="default" onClick={cancel} aria-disabled={sending.isPending}>Cancel</Button>}
        </Group>
        <div role="status">{sending.isSuccess && sending.data}</div>
      </Stack>
    </form>
  );
}

interface AskProps extends Omit<SendProps, "cancel" | "kept"> {
  title: string;
  /** What the button that opens the question says; the same as button when absent. */
  opener?: string;
  /** What the opening button does to which row, for those who hear the page. */
  label?: string;
  small?: boolean;
  /** Whether the call needs a second sign-in, which leaves the page for the identity provider. */
  stepUp?: boolean;
}

/** Ask is a button that opens a question, and sends once it is confirmed. It tells beside it what came of it. */
export function Ask({ title, opener, label, small, stepUp, children, done, send, ...form }: AskProps) {
  const [open, setOpen] = useState(false);
  const [told, setTold] = useState<ReactNode>();
  const key = useRef("");
  const isSending = useRef(false);
  const sendAndTell = async (given: Given, key: string) => {
    isSending.current = true;
    try {
      const answer = await send(given, key);
      setTold(answer);
      return answer;
    } finally {
      isSending.current = false;
    }
  };
  const close = () => { if (!isSending.current) setOpen(false); }; // what is sent cannot be taken back
  return (
    <>
      <Button variant={form.danger ? "outline" : "default"} color={form.danger ? "red" : undefined} size={small ? "compact-sm" : undefined} aria-label={label} onClick={() => { setTold(undefined); setOpen(true); }}>{opener ?? form.button}</Button>
      <div role="status">{told}</div>
      <Modal opened={open} onClose={close} title={title} closeButtonProps={{ "aria-label": "Close" }}>
        <StepUpFirst needed={stepUp}>
          <SendForm {...form} send={sendAndTell} kept={key} cancel={close} done={() => { setOpen(false); done?.(); }}>{children}</SendForm>
        </StepUpFirst>
      </Modal>
    </>
  );
}
