import { Alert, Button, Code, List, Text } from "@mantine/core";
import { asProblem, isKeyReused } from "../../api/problem";
import { problemText } from "../../textProblem";

/** Failed shows why a request failed: what happened, what to do, and everything that is wrong. */
export function Failed({ error, again }: { error: unknown; again?: () => void }) {
  const problem = asProblem(error);
  return (
    <Alert color="red" title={problem.title ?? problemText.unknown} role="alert">
      {isKeyReused(problem)
        ? <p>The first request, which was not the same as this one, may have been carried out. Look at the list before you send it again.</p>
        : problem.detail && <p>{problem.detail}</p>}
      {problem.errors && problem.errors.length > 0 && (
        <List size="sm">{problem.errors.map((e, i) => <List.Item key={i}>{e.location && <Code>{e.location}</Code>} {e.message}</List.Item>)}</List>
      )}
      {problem.retry_after_seconds ? <p>{problemText.retryAfter(problem.retry_after_seconds)}</p> : null}
      {problem.request_id && <Text size="sm">{problemText.requestId} <Code>{problem.request_id}</Code></Text>}
      {again && <Button variant="default" size="xs" onClick={again}>{problemText.again}</Button>}
    </Alert>
  );
}
