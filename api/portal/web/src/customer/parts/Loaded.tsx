import { Loader, Text } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { asProblem } from "../../api/problem";
import { Failed } from "./Failed";

const hidden = [401, 403, 404]; // the answers after which what was read before is not shown any more

/** Loaded shows what a query has read, and why its last try failed. What was read stays on the page while it may be seen. */
export function Loaded<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  const failed = query.isError && <Failed error={query.error} again={() => void query.refetch()} />;
  if (query.isError && hidden.includes(asProblem(query.error).status ?? 0)) return failed;
  if (query.data === undefined && query.fetchStatus === "idle" && !query.isError) return <Text c="dimmed">Nothing is chosen.</Text>;
  if (query.data === undefined) return failed || <div aria-busy="true"><Loader aria-label="Loading" size="sm" /></div>;
  return <>{failed}{children(query.data)}</>;
}
