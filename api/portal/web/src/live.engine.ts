import { createParser } from "eventsource-parser";

/** LiveBatch names what has changed since the batch before. */
export interface LiveBatch {
  type: "batch";
  /** Ids of nodes and of other resources. */
  ids: string[];
  /** Kinds of resources that changed, such as node and job. */
  kinds: string[];
  /** Something may have been missed: everything on the screen is to be read again. */
  all: boolean;
}

/** LiveStatus says whether changes arrive. */
export interface LiveStatus {
  type: "status";
  status: "connecting" | "open" | "closed" | "signed-out";
}

/** LiveRequest is what a tab asks of the engine. */
export interface LiveRequest {
  type: "restart" | "status?";
}

/** LivePrincipal says who is signed in, as a tab has just read. */
export interface LivePrincipal {
  type: "principal";
  id: string;
}

export type LiveMessage = LiveBatch | LiveStatus | LiveRequest | LivePrincipal;

/** channelName is the BroadcastChannel that the engine and all tabs share. */
export const channelName = "slipway-live";

const postEvery = 1000; // milliseconds between two batches
const mostIds = 2000; // a batch with more says "all"
const firstWait = 1000;
const longestWait = 30000;
const silentAfter = 45000; // the server sends a heartbeat every 15 s

/**
 * runLive follows the event stream and posts the changed ids, at most one batch a second. EventSource
 * cannot be used: the server names the type of each event, and EventSource hands over only types that
 * are known beforehand.
 */
export function runLive(): void {
  const channel = new BroadcastChannel(channelName);
  const ids = new Set<string>();
  const kinds = new Set<string>();
  let all = false;
  let lastPost = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let lastId = "";
  let status: LiveStatus["status"] = "connecting";
  let abort = new AbortController();
  let wake: () => void = () => undefined;
  let restarted = false; // follow again at once, from the beginning
  let principal = "";

  function setStatus(next: LiveStatus["status"]): void {
    status = next;
    channel.postMessage({ type: "status", status } satisfies LiveMessage);
  }

  function post(): void {
    timer = undefined;
    lastPost = Date.now();
    channel.postMessage({ type: "batch", ids: all ? [] : [...ids], kinds: [...kinds], all } satisfies LiveMessage);
    ids.clear();
    kinds.clear();
    all = false;
  }

  function schedule(): void {
    const since = Date.now() - lastPost;
    timer ??= setTimeout(post, since < 0 || since > postEvery ? 50 : postEvery - since);
  }

  function take(data: string): void {
    const event = JSON.parse(data) as { resource_kind?: string; resource_id?: string; node_id?: string };
    if (event.resource_id) ids.add(event.resource_id);
    if (event.node_id) ids.add(event.node_id);
    if (event.resource_kind) kinds.add(event.resource_kind);
    if (ids.size > mostIds) all = true;
    schedule();
  }

  /** follow reads one stream to its end. It returns false when nobody is signed in. */
  async function follow(): Promise<boolean> {
    abort = new AbortController();
    const resumed = lastId !== "";
    const query = resumed ? "?last_event_id=" + encodeURIComponent(lastId) : "";
    const unanswered = setTimeout(() => abort.abort(), silentAfter); // a proxy may take the connection and never answer
    const response = await fetch("/api/v1/events" + query, {
      credentials: "same-origin", cache: "no-store", headers: { Accept: "text/event-stream" }, signal: abort.signal,
    }).finally(() => clearTimeout(unanswered));
    if (response.status === 401) return false;
    if (response.status === 410 || response.status === 422) lastId = ""; // the server cannot continue after this id
    if (!response.ok || !response.body) throw new Error("no event stream");
    if (!resumed) {
      all = true; // what happened before this stream began is not in it
      schedule();
    }
    setStatus("open");
    const parser = createParser({
      onEvent: (event) => {
        if (event.id) lastId = event.id;
        take(event.data);
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const silent = setTimeout(() => abort.abort(), silentAfter);
      try {
        const { done, value } = await reader.read();
        if (done) return true;
        parser.feed(value);
      } finally {
        clearTimeout(silent);
      }
    }
  }

  async function run(): Promise<void> {
    let wait = firstWait;
    for (;;) {
      const began = Date.now();
      let signedIn = true;
      restarted = false;
      try {
        signedIn = await follow();
      } catch {
        // The stream broke; it is followed again below.
      }
      if (restarted) {
        lastId = "";
        wait = firstWait;
        setStatus("connecting");
        continue;
      }
      setStatus(signedIn ? "closed" : "signed-out");
      wait = Date.now() - began > longestWait ? firstWait : Math.min(wait * 2, longestWait);
      const pause = signedIn ? wait * (0.5 + Math.random() / 2) : undefined;
      await new Promise<void>((resolve) => {
        wake = () => { wait = firstWait; resolve(); };
        if (pause !== undefined) setTimeout(resolve, pause);
      });
      setStatus("connecting");
    }
  }

  function restart(): void {
    restarted = true;
    lastId = "";
    abort.abort();
    wake();
  }

  channel.onmessage = (event: MessageEvent<LiveMessage>) => {
    if (event.data.type === "status?") {
      if (status === "signed-out") wake(); // a tab asks that is signed in
      else setStatus(status);
    }
    if (event.data.type === "restart") restart();
    if (event.data.type === "principal") {
      if (principal !== "" && principal !== event.data.id) restart();
      principal = event.data.id;
    }
  };
  void run();
}
