import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { JobLink } from "../parts/Link";
import { text, words } from "../text";

type NodePath = "/api/v1/nodes/{id}/actions/drain"; // the paths of all node actions take and give the same

/** nodeActions are the actions that the portal offers on a node when the API allows them. */
export const nodeActions = ["drain", "retire", "reactivate", "quarantine", "unquarantine", "remove", "resume"];

const graceful = ["drain", "retire"];

/** askNodeAction asks for a reason and sends the action. Removing asks for the hostname too. */
export function askNodeAction(node: { id?: string; hostname?: string; action_needs?: Record<string, string>; live_job_id?: string; agent?: Schemas["NodeAgent"] }, action: string, again: () => void): void {
  const id = node.id ?? "";
  const need = node.action_needs?.[action];
  const path = `/api/v1/nodes/{id}/actions/${action}` as NodePath;
  askAction({
    title: `${words(action)}: ${node.hostname ?? id}`, button: words(action),
    body: action === "resume" ? text.nodeResume : text.actionMeaning[action],
    warnings: need ? [`${text.node.needs}: ${need}`] : undefined,
    reason: action === "quarantine" || action === "retire" || action === "remove" ? "required" : "optional",
    danger: action === "retire" || action === "remove",
    confirmName: action === "remove" ? node.hostname ?? id : undefined,
    fields: graceful.includes(action) ? [{ name: "grace", label: text.node.graceLabel, kind: "number", max: 86400 }] : undefined,
    send: async ({ reason, values, key }) => {
      const grace = values["grace"];
      const body = { reason: reason || undefined, grace_seconds: grace ? Number(grace) : undefined };
      const answer = await call(() => client.POST(path, { params: { path: { id }, header: { "Idempotency-Key": key } }, body }));
      return <>{answer.message ?? text.action.sent} {answer.job_id && <JobLink id={answer.job_id} name={text.action.started} />}</>;
    },
    done: again,
  });
}
