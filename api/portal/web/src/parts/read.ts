import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { serverNow } from "../clock";

/** Read is what a page has read: the newest answer, when it came, and why the last try failed. */
export interface Read<T> {
  data: T | undefined;
  problem: Problem | undefined;
  loading: boolean;
  /** When data was read, by the server's clock. */
  at: string | undefined;
  again: () => Promise<void>;
}

/**
 * useRead reads when key changes and when again is called. What was read stays until something newer
 * is there. An answer for another key is dropped.
 */
export function useRead<T>(key: string, read: () => Promise<T>): Read<T> {
  const [state, setState] = useState<{ key: string; data?: T; problem?: Problem; at?: string; loading: boolean }>({ key, loading: true });
  const latest = useRef({ key, read, turn: 0 });
  latest.current.key = key;
  latest.current.read = read;
  const again = useCallback(async () => {
    const asked = latest.current.key;
    const turn = ++latest.current.turn;
    setState((s) => (s.key === asked ? { ...s, loading: true } : { key: asked, loading: true }));
    let data: T;
    try {
      data = await latest.current.read();
    } catch (error) {
      if (latest.current.key === asked && latest.current.turn === turn) setState((s) => ({ ...s, problem: asProblem(error), loading: false }));
      return;
    }
    if (latest.current.key !== asked || latest.current.turn !== turn) return;
    setState({ key: asked, data, at: new Date(serverNow()).toISOString(), loading: false });
  }, []);
  useEffect(() => { void again(); }, [key]);
  const current = state.key === key;
  return {
    data: current ? state.data : undefined, problem: current ? state.problem : undefined,
    loading: current ? state.loading : true, at: current ? state.at : undefined, again,
  };
}
