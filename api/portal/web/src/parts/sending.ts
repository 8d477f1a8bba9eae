import { useRef, useState } from "preact/hooks";
import { newKey } from "../api/client";
import { asProblem, isFinal } from "../api/problem";
import type { Problem } from "../api/problem";

/** Sending is a form that is sent: once at a time, and with the same key while its outcome is not known. */
export interface Sending {
  busy: boolean;
  problem: Problem | undefined;
  run: (send: (key: string) => Promise<void>) => Promise<void>;
}

/** useSending sends a form. The key is an Idempotency-Key; a corrected request gets another one. */
export function useSending(): Sending {
  const key = useRef(newKey());
  const sending = useRef(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  async function run(send: (key: string) => Promise<void>): Promise<void> {
    if (sending.current) return;
    sending.current = true;
    setBusy(true);
    setProblem(undefined);
    try {
      await send(key.current);
    } catch (error) {
      const refused = asProblem(error);
      if (isFinal(refused)) key.current = newKey();
      setProblem(refused);
    } finally {
      sending.current = false;
      setBusy(false);
    }
  }
  return { busy, problem, run };
}
