import type { Problem } from "../api/problem";
import { text, words } from "../text";

/** ProblemText shows a problem document: what happened, what to do, and everything that is wrong. */
export function ProblemText({ problem, again }: { problem: Problem | undefined; again?: () => void }) {
  if (!problem) return null;
  return (
    <div role="alert" class="problem" data-problem={problem.type ?? ""}>
      <p><strong><span aria-hidden="true">✖ </span>{problem.title}</strong></p>
      {problem.detail && <p>{problem.detail}</p>}
      {problem.errors && problem.errors.length > 0 && (
        <ul>{problem.errors.map((e, i) => <li key={i}>{e.location && <code>{e.location}</code>} {e.message}</li>)}</ul>
      )}
      {problem.existing && <p>{text.problem.existing}: <code>{problem.existing}</code></p>}
      {problem.allowed && problem.allowed.length > 0 && <p>{text.problem.allowed}: {problem.allowed.map(words).join(", ")}</p>}
      {problem.retry_after_seconds ? <p>{text.problem.retryAfter(problem.retry_after_seconds)}</p> : null}
      {problem.request_id && <p class="quiet">{text.problem.requestId} <code>{problem.request_id}</code></p>}
      {again && <button type="button" onClick={again}>{text.problem.again}</button>}
    </div>
  );
}
