import { useEffect, useState } from "preact/hooks";
import { readStream } from "../api/connect";
import type { LogChunk } from "../api/machines";
import { asProblem, isFinal, ProblemError } from "../api/problem";
import type { Problem } from "../api/problem";

/** LogPart is output of one attempt of a step, on one of its streams. */
export interface LogPart {
  key: number;
  step: string;
  attempt: number;
  stream: string;
  text: string;
}

/** RunLog is the newest output of a run. */
export interface RunLog {
  parts: LogPart[];
  /** Older output came and is not kept. */
  dropped: boolean;
  /** Output was deleted before it was read. */
  gone: boolean;
  status: "connecting" | "open" | "paused" | "retrying" | "ended";
  problem?: Problem;
}

const mostKept = 256 << 10; // characters that a page keeps of a run
const mostParts = 500;
const partSize = 16 << 10; // a longer part is continued by another one, so that little is dropped at a time
const longestPart = 64 << 10; // of one line
const showEvery = 250; // milliseconds between two changes of the page
const firstWait = 1000;
const longestWait = 30_000;

/** LogBuffer holds the newest output, and never more than the bounds above. */
export class LogBuffer {
  parts: LogPart[] = [];
  dropped = false;
  private size = 0;
  private lastKey = 0;
  private decoders = new Map<string, TextDecoder>();

  /** add appends a chunk. A character that a chunk cuts is completed by the next one of its stream. */
  add(chunk: LogChunk): void {
    const source = `${chunk.step}\n${chunk.attempt}\n${chunk.stream}`;
    let decoder = this.decoders.get(source);
    if (!decoder) {
      if (this.decoders.size >= 4) this.decoders.clear(); // those of steps before
      decoder = new TextDecoder();
      this.decoders.set(source, decoder);
    }
    const bytes = Uint8Array.from(atob(chunk.data), (c) => c.charCodeAt(0));
    const text = decoder.decode(bytes, { stream: true });
    const last = this.parts.at(-1);
    if (last?.step === chunk.step && last.attempt === chunk.attempt && last.stream === chunk.stream) {
      const joined = last.text + text;
      const end = joined.length < partSize ? joined.length : joined.lastIndexOf("\n") + 1; // a part ends with a line
      const cut = end > 0 ? end : joined.length < longestPart ? joined.length : longestPart;
      this.parts[this.parts.length - 1] = { ...last, text: joined.slice(0, cut) };
      if (cut < joined.length) this.push(chunk, joined.slice(cut));
    } else this.push(chunk, text);
    this.size += text.length;
    while (this.parts.length > 1 && (this.size > mostKept || this.parts.length > mostParts)) {
      this.size -= this.parts.shift()?.text.length ?? 0;
      this.dropped = true;
    }
  }

  private push(chunk: LogChunk, text: string): void {
    this.parts.push({ key: ++this.lastKey, step: chunk.step, attempt: chunk.attempt, stream: chunk.stream, text });
  }
}

/**
 * useRunLog follows the output of a run until it has ended. A stream that breaks continues after the last
 * chunk that came; while the tab is hidden none is open, since a browser opens few connections to a host.
 */
export function useRunLog(runId: string): RunLog {
  const [shown, setShown] = useState<RunLog>({ parts: [], dropped: false, gone: false, status: "connecting" });
  useEffect(() => {
    let left = false;
    let buffer = new LogBuffer();
    let seq = "0";
    let gone = false;
    let status: RunLog["status"] = "connecting";
    let problem: Problem | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let abort = new AbortController();
    let wake: () => void = () => undefined;

    function show(): void {
      timer = undefined;
      if (!left) setShown({ parts: [...buffer.parts], dropped: buffer.dropped, gone, status, problem });
    }
    function change(next: RunLog["status"], why?: Problem): void {
      status = next;
      problem = why;
      timer ??= setTimeout(show, showEvery);
    }
    function take(chunk: LogChunk): void {
      if (chunk.data) buffer.add(chunk);
      seq = chunk.seq;
      change("open");
    }

    /** follow reads one stream to its end. It returns false when there is nothing more to read. */
    async function follow(): Promise<boolean> {
      abort = new AbortController();
      try {
        await readStream<LogChunk>("RunService/StreamRunLogs", { run_id: runId, resume_after: seq }, take, abort.signal);
        change("ended");
        return false;
      } catch (error) {
        if (left || document.hidden) return !left;
        const refused = error instanceof ProblemError ? asProblem(error) : undefined;
        if (refused?.status === 410) { // what came after the position is not kept any more
          buffer = new LogBuffer();
          seq = "0";
          gone = true;
        } else if (refused && (isFinal(refused) || refused.status === 401)) {
          change("ended", refused);
          return false;
        }
        change("retrying", refused);
        return true;
      }
    }

    async function run(): Promise<void> {
      let wait = firstWait;
      for (;;) {
        const before = seq;
        if (!document.hidden && !(await follow())) return;
        if (left) return;
        if (document.hidden) change("paused");
        wait = seq !== before ? firstWait : Math.min(wait * 2, longestWait);
        const pause = document.hidden ? undefined : wait * (0.5 + Math.random() / 2);
        await new Promise<void>((resolve) => {
          wake = resolve;
          if (pause !== undefined) setTimeout(resolve, pause);
        });
        if (left) return;
      }
    }
    const visible = () => (document.hidden ? abort.abort() : wake());
    document.addEventListener("visibilitychange", visible);
    setShown({ parts: [], dropped: false, gone: false, status });
    void run();
    return () => {
      left = true;
      abort.abort();
      wake();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    };
  }, [runId]);
  return shown;
}
