import { Anchor, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { later } from "../api";
import { Facts, Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { Paged } from "../parts/Paged";
import { Secret } from "../parts/Secret";
import { Ask, SendForm } from "../parts/SendForm";
import { Status, words } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { navigate, projectHref } from "../route";

type WebhookView = Schemas["Webhook"];
type Delivery = Schemas["Delivery"];

/** overlap is for how many seconds the secret of before counts beside a new one: a day. */
const overlap = 86_400;

const typesOf = (text: string | undefined) => (text ?? "").split(/[\s,]+/).filter((t) => t !== "");

/** Webhooks lists and adds the webhooks of a project. */
export function Webhooks({ project }: PageProps) {
  const create = async (given: Record<string, string>, key: string) => {
    const types = typesOf(given["types"]);
    const body = { name: given["name"] ?? "", url: given["url"] ?? "", event_types: types.length > 0 ? types : undefined };
    const made = await call(() => client.POST("/api/v1/projects/{id}/webhooks", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body }));
    return <Secret label={`Signing secret of ${made.name ?? ""}`} value={made.secret} />;
  };
  return (
    <>
      <Heading>Webhooks</Heading>
      <Text>A webhook tells a server of yours what happens in this project.</Text>
      <Paged<WebhookView> name={["webhooks", project]} caption="Webhooks of the project" every={later} keyOf={(h) => h.id ?? ""} empty="The project has no webhook."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/webhooks", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Name", header: true, cell: (h) => <Anchor href={projectHref(project, `/webhooks/${encodeURIComponent(h.id ?? "")}`)}>{h.name ?? ""}</Anchor> },
          { label: "Address", cell: (h) => h.url },
          { label: "State", cell: (h) => <Status of={h.status} /> },
          { label: "Last success", cell: (h) => <Time at={h.last_success_at} /> },
          { label: "Last failure", cell: (h) => <Time at={h.last_failure_at} /> },
        ]} />
      <Section title="Add a webhook">
        <SendForm button="Add the webhook" send={create}>
          <TextInput name="name" label="Name" required withAsterisk={false} maxLength={100} />
          <TextInput name="url" label="Address" type="url" required withAsterisk={false} maxLength={2000} description="https, with a public host" />
          <TextInput name="types" label="Types of events" maxLength={2000} description="Such as allocation.changed; left empty, all of them" />
        </SendForm>
      </Section>
    </>
  );
}

/** Webhook shows one webhook and its deliveries, and tests it. */
export function Webhook({ project, id }: PageProps) {
  const path = { id: project, webhook_id: id };
  const query = useQuery({ queryKey: ["webhooks", project, "one", id], refetchInterval: later, queryFn: () => call(() => client.GET("/api/v1/projects/{id}/webhooks/{webhook_id}", { params: { path } })) });
  return (
    <Loaded query={query}>
      {(h) => {
        const header = { "If-Match": `"${h.version ?? 0}"` };
        return (
          <>
            <Heading side={<Status of={h.status} />}>{`Webhook: ${h.name ?? ""}`}</Heading>
            <div className="buttons">
              <Ask title="Send a test" button="Send a test" send={async (_, key) => {
                await call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/test", { params: { path, header: { "Idempotency-Key": key } } }));
                return "The test is queued.";
              }}><Text>An event of the type webhook.test is sent to the address. It is in the deliveries below.</Text></Ask>
              <Ask title={h.status === "enabled" ? "Disable the webhook" : "Enable the webhook"} button={h.status === "enabled" ? "Disable" : "Enable"} send={async () => {
                await call(() => client.PATCH("/api/v1/projects/{id}/webhooks/{webhook_id}", { params: { path, header }, body: { enabled: h.status !== "enabled" } }));
                return "It is saved.";
              }}><Text>{h.status === "enabled" ? "Nothing is sent until it is enabled again." : "What happens from now on is sent again."}</Text></Ask>
              <Ask title="New signing secret" button="Make a new secret" send={async () => {
                const made = await call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/rotate-secret", { params: { path, header }, body: { overlap_seconds: overlap } }));
                return <Secret label="Signing secret" value={made.secret} />;
              }}><Text>The secret of before counts for a day too, so that your server can change to the new one.</Text></Ask>
              <Ask danger title={`Delete the webhook ${h.name ?? ""}`} button="Delete" send={async () => {
                await call(() => client.DELETE("/api/v1/projects/{id}/webhooks/{webhook_id}", { params: { path, header } }));
                navigate(projectHref(project, "/webhooks"));
                return "The webhook is deleted.";
              }}><Text>Its deliveries are deleted with it.</Text></Ask>
            </div>
            <Facts facts={[
              ["Address", h.url],
              ["Types of events", h.event_types?.join(", ") || "all"],
              ["Disabled because of", h.disabled_reason && words(h.disabled_reason)],
              ["Failures in a row", h.failures],
              ["Last error", h.last_error],
              ["The secret of before counts until", h.previous_secret_until && <Time at={h.previous_secret_until} />],
            ]} />
            <Section title="Deliveries">
              <Paged<Delivery> name={["deliveries", id]} caption="Deliveries" every={later} keyOf={(d) => d.event_id ?? ""} empty="Nothing was sent yet."
                read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/webhooks/{webhook_id}/deliveries", { params: { path, query: { limit: 50, cursor } } }))}
                columns={[
                  { label: "Event", header: true, cell: (d) => d.type },
                  { label: "About", cell: (d) => d.subject },
                  { label: "When", cell: (d) => <Time at={d.occurred_at} /> },
                  { label: "State", cell: (d) => <Status of={d.status} /> },
                  { label: "Attempts", right: true, cell: (d) => d.attempts },
                  { label: "Answer", cell: (d) => d.answer || d.error },
                  {
                    label: "Action", cell: (d) => d.status !== "pending" && (
                      <Ask small title="Send it again" button="Send again" label={`Send again: ${d.type ?? ""} ${d.event_id ?? ""}`} send={async (_, key) => {
                        await call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/deliveries/{event_id}/redeliver", { params: { path: { ...path, event_id: d.event_id ?? "" }, header: { "Idempotency-Key": key } } }));
                        return "It is queued.";
                      }}><Text>The same event is sent to the address once more.</Text></Ask>
                    ),
                  },
                ]} />
            </Section>
          </>
        );
      }}
    </Loaded>
  );
}
