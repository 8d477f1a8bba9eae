import { Loader } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Failed } from "./Failed";

/** Loaded shows what a query has read, and why its last try failed. What was read stays on the page. */
export function Loaded<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  const failed = query.isError && <Failed error={query.error} again={() => void query.refetch()} />;
  if (query.data === undefined) return failed || <div aria-busy="true"><Loader aria-label="Loading" size="sm" /></div>;
  return <>{failed}{children(query.data)}</>;
}
