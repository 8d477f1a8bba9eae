import type { ComponentChildren } from "preact";
import { text } from "../text";
import { Heading } from "./Facts";
import { ProblemText } from "./ProblemText";
import type { Read } from "./read";

/** Loaded shows what a page has read, or why it could not be read. */
export function Loaded<T>({ read, title, children }: { read: Read<T>; title: string; children: (data: T) => ComponentChildren }) {
  const problem = <ProblemText problem={read.problem} again={() => void read.again()} />;
  if (read.data === undefined) return <><Heading title={title} />{problem}{read.loading && <p role="status">{text.loading}</p>}</>;
  return <>{problem}{children(read.data)}</>;
}
