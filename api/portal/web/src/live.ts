import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { channelName, runLive } from "./live.engine";
import type { LiveBatch, LiveMessage, LiveStatus } from "./live.engine";
import { base } from "./router";

/** liveStatus says whether changes arrive. */
export const liveStatus = signal<LiveStatus["status"]>("connecting");

/** announced is the id of the principal that another tab has read as signed in. */
export const announced = signal("");

type Listener = (batch: LiveBatch) => void;
const listeners = new Set<Listener>();
let channel: BroadcastChannel | undefined;

const unheardAfter = 10_000; // milliseconds until a tab says that nothing follows the stream

/** followHere follows the stream without a worker: one tab at a time holds the lock, the others listen. */
function followHere(): void {
  if (!("locks" in navigator)) {
    runLive();
    return;
  }
  void navigator.locks.request(channelName, () => {
    runLive();
    return new Promise(() => undefined);
  });
}

/** startLive joins the event stream that all tabs share. */
export function startLive(): void {
  if (channel) return;
  channel = new BroadcastChannel(channelName);
  const unheard = setTimeout(() => { liveStatus.value = "closed"; }, unheardAfter);
  channel.onmessage = (event: MessageEvent<LiveMessage>) => {
    const message = event.data;
    if (message.type === "status") {
      clearTimeout(unheard);
      liveStatus.value = message.status;
    }
    if (message.type === "principal") announced.value = message.id;
    if (message.type === "batch") for (const listener of listeners) listener(message);
  };
  if ("SharedWorker" in window) {
    const worker = new SharedWorker(workerAddress() as string, { name: "slipway-live" });
    worker.onerror = () => followHere(); // its script is not there, such as after an update
  } else followHere();
  channel.postMessage({ type: "status?" } satisfies LiveMessage);
}

/** restartLive follows the stream again as whoever is signed in now. */
export function restartLive(): void {
  channel?.postMessage({ type: "restart" } satisfies LiveMessage);
}

/** announce tells the other tabs and the stream who is signed in. */
export function announce(id: string): void {
  channel?.postMessage({ type: "principal", id } satisfies LiveMessage);
}

interface ScriptPolicies {
  createPolicy(name: string, rules: { createScriptURL(address: string): string }): { createScriptURL(address: string): unknown };
}

/** workerAddress returns the worker's address in the form that trusted types require. */
function workerAddress(): unknown {
  const address = `${base}/${WORKER_FILE}`;
  const policies = (window as { trustedTypes?: ScriptPolicies }).trustedTypes;
  if (!policies) return address;
  return policies.createPolicy("slipway-worker", { createScriptURL: () => address }).createScriptURL(address);
}

/** everything as an id of useLive stands for each change of anything. */
export const everything = "*";

/** pauseAfter returns a read that is followed by a pause, so that a busy fleet costs one read in each. */
export function pauseAfter(milliseconds: number, read: () => Promise<void>): () => Promise<void> {
  return async () => {
    await read();
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
  };
}

/**
 * useLive calls read with the ids, of those given, that have changed; or with all of them when some
 * may have been missed. It calls it at most once at a time, and not while the tab is hidden. Kinds
 * that changed without an id of these go to other.
 */
export function useLive(ids: string[], read: (changed: string[]) => Promise<void>, other?: (kinds: string[]) => void): void {
  const latest = useRef({ ids, read, other });
  latest.current = { ids, read, other };
  useEffect(() => {
    const changed = new Set<string>();
    let all = false;
    let reading = false;
    const flush = async () => {
      if (reading || document.hidden || (!all && changed.size === 0)) return;
      reading = true;
      const now = latest.current.ids.filter((id) => all || changed.has(id));
      changed.clear();
      all = false;
      try {
        if (now.length > 0) await latest.current.read(now);
      } catch {
        // The next change or the next page reads again; the age on the page shows how old it is.
      } finally {
        reading = false;
      }
      void flush();
    };
    const take: Listener = (batch) => {
      if (batch.all) all = true;
      const known = new Set(latest.current.ids);
      let foreign = false;
      if (known.has(everything)) changed.add(everything);
      for (const id of batch.ids) {
        if (known.has(id)) changed.add(id);
        else foreign = true;
      }
      if (foreign) latest.current.other?.(batch.kinds);
      void flush();
    };
    const shown = () => void flush();
    listeners.add(take);
    document.addEventListener("visibilitychange", shown);
    return () => {
      listeners.delete(take);
      document.removeEventListener("visibilitychange", shown);
    };
  }, []);
}
