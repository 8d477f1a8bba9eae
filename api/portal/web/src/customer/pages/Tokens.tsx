import { NativeSelect, Text, TextInput } from "@mantine/core";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { Heading, Section } from "../parts/Facts";
import { Paged } from "../parts/Paged";
import { Secret } from "../parts/Secret";
import { Ask, SendForm } from "../parts/SendForm";
import { StepUpFirst } from "../parts/StepUpFirst";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";

type Token = Schemas["ProjectToken"];

/** Tokens lists, makes and deletes the API tokens of a project. */
export function Tokens({ project }: PageProps) {
  const create = async (given: Record<string, string>, key: string) => {
    const body = { name: given["name"] ?? "", role: given["role"] ?? "", days: Number(given["days"]) };
    const made = await call(() => client.POST("/api/v1/projects/{id}/tokens", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body }));
    return <Secret label={`Token ${made.name ?? ""}`} value={made.token} />;
  };
  return (
    <>
      <Heading>API tokens</Heading>
      <Text>A token lets a program act in this project, with the command slipway or the API.</Text>
      <Paged<Token> name={["tokens", project]} caption="API tokens of the project" keyOf={(t) => t.id ?? ""} empty="The project has no token."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/tokens", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Name", header: true, cell: (t) => t.name },
          { label: "Role", cell: (t) => t.role },
          { label: "Last used", cell: (t) => t.last_used_at ? <Time at={t.last_used_at} /> : "never" },
          { label: "Ends", cell: (t) => <Time at={t.expires_at} /> },
          {
            label: "Action", cell: (t) => (
              <Ask small danger title={`Delete the token ${t.name ?? ""}`} button="Delete" label={`Delete: ${t.name ?? ""}`} send={async () => {
                await call(() => client.DELETE("/api/v1/projects/{id}/tokens/{token_id}", { params: { path: { id: project, token_id: t.id ?? "" } } }));
                return "The token is deleted.";
              }}><Text>Programs that use it are refused from now on.</Text></Ask>
            ),
          },
        ]} />
      <Section title="Make a token">
        <StepUpFirst needed>
          <SendForm button="Make the token" send={create}>
            <TextInput name="name" label="Name" required withAsterisk={false} maxLength={100} description="What uses it" />
            <NativeSelect name="role" label="Role" data={["member", "viewer", "billing", "owner"]} />
            <TextInput name="days" label="Days until it ends" type="number" min={1} max={365} defaultValue={30} required withAsterisk={false} />
          </SendForm>
        </StepUpFirst>
      </Section>
    </>
  );
}
