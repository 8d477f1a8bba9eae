import { NativeSelect, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { later } from "../api";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { Paged } from "../parts/Paged";
import { Ask, SendForm } from "../parts/SendForm";
import { Status } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";

type Instance = Schemas["ProjectInstance"];
type InstanceType = Schemas["InstanceType"];

const ended = ["terminated", "failed"];

/** Instances lists, makes and terminates the cloud instances of a project. */
export function Instances({ project }: PageProps) {
  const types = useQuery({ queryKey: ["instance-types"], queryFn: async () => (await call(() => client.GET("/api/v1/instance-types", {}))).data ?? [] });
  return (
    <>
      <Heading>Instances</Heading>
      <Text>An instance is a server of a cloud that serves a model.</Text>
      <Paged<Instance> name={["instances", project]} caption="Instances of the project" every={later} keyOf={(i) => i.id ?? ""} empty="The project has no instance."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/instances", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Name", header: true, cell: (i) => i.name },
          { label: "State", cell: (i) => <Status of={i.status} /> },
          { label: "Progress", cell: (i) => i.progress_percent !== undefined && !ended.includes(i.status ?? "") && !i.ready_at ? `${i.progress_percent} %` : "" },
          { label: "Type", cell: (i) => `${i.provider ?? ""}/${i.type ?? ""} in ${i.zone ?? ""}` },
          { label: "Model", cell: (i) => i.model },
          { label: "Created", cell: (i) => <Time at={i.created_at} /> },
          {
            label: "Action", cell: (i) => !ended.includes(i.status ?? "") && (
              <Ask small danger stepUp title={`Terminate ${i.name ?? ""}`} button="Terminate" label={`Terminate: ${i.name ?? ""}`} send={async (given) => {
                await call(() => client.POST("/api/v1/projects/{id}/instances/{instance_id}/terminate", { params: { path: { id: project, instance_id: i.id ?? "" } }, body: { reason: given["reason"] || undefined } }));
                return "The instance ends.";
              }}><Text>The server and what is on it are deleted. This cannot be undone.</Text><TextInput name="reason" label="Reason" maxLength={500} data-autofocus /></Ask>
            ),
          },
        ]} />
      <Section title="Make an instance">
        <Loaded query={types}>
          {(list) => {
            const offered = list.filter((t) => (t.zones ?? []).length > 0);
            return offered.length === 0 ? <Text c="dimmed">No type of instance is offered now.</Text> : <Create project={project} types={offered} />;
          }}
        </Loaded>
      </Section>
    </>
  );
}

const nameOf = (t: InstanceType) => `${t.provider ?? ""}/${t.name ?? ""}`;

function Create({ project, types }: { project: string; types: InstanceType[] }) {
  const [chosen, setChosen] = useState(nameOf(types[0] ?? {}));
  const type = types.find((t) => nameOf(t) === chosen) ?? types[0];
  const create = async (given: Record<string, string>, key: string) => {
    const body = { name: given["name"] ?? "", provider: type?.provider ?? "", type: type?.name ?? "", zone: given["zone"] ?? "", model: given["model"] ?? "" };
    const made = await call(() => client.POST("/api/v1/projects/{id}/instances", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body }));
    return `The instance ${made.name ?? ""} is being made.`;
  };
  return (
    <SendForm button="Make the instance" send={create}>
      <TextInput name="name" label="Name" required withAsterisk={false} maxLength={63} />
      <NativeSelect label="Type" value={chosen} onChange={(e) => setChosen(e.currentTarget.value)} data={types.map((t) => ({ value: nameOf(t), label: [nameOf(t), t.gpu].filter(Boolean).join(", ") }))} />
      <NativeSelect key={chosen} name="zone" label="Zone" data={type?.zones ?? []} />
      <TextInput name="model" label="Model" required withAsterisk={false} maxLength={200} description="Such as meta-llama/Llama-3.1-8B-Instruct" />
    </SendForm>
  );
}
