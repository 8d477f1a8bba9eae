import { NativeSelect, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { Paged } from "../parts/Paged";
import { Ask, SendForm } from "../parts/SendForm";
import { Status } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { DataTable } from "../parts/DataTable";

type Member = Schemas["Member"];
type Invitation = Schemas["Invitation"];

/** roles are those that a member may have, with what they may do. */
const roles = [
  { value: "member", label: "member: orders and releases nodes" }, { value: "viewer", label: "viewer: reads" },
  { value: "billing", label: "billing: sees and pays what it costs" }, { value: "owner", label: "owner: everything" },
];

const ifMatch = (version: number | undefined) => ({ "If-Match": `"${version ?? 0}"` });

/** Members lists and invites the members of a project. */
export function Members({ project }: PageProps) {
  const groups = useQuery({ queryKey: ["groups", project], queryFn: async () => (await call(() => client.GET("/api/v1/projects/{id}/group-roles", { params: { path: { id: project } } }))).data ?? [] });
  const invite = async (given: Record<string, string>, key: string) => {
    const made = await call(() => client.POST("/api/v1/projects/{id}/invitations", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body: { email: given["email"], role: given["role"] ?? "", days: Number(given["days"]) } }));
    return `${made.email ?? ""} is invited. The invitation is at /portal/my/ when they sign in with this address.`;
  };
  return (
    <>
      <Heading>Members</Heading>
      <Paged<Member> name={["members", project]} caption="Members of the project" keyOf={(m) => m.id ?? ""} empty="The project has no member."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/members", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Name", header: true, cell: (m) => m.name || m.subject },
          { label: "Role", cell: (m) => m.role },
          { label: "Since", cell: (m) => <Time at={m.created_at} /> },
          { label: "Action", cell: (m) => <MemberActions project={project} member={m} /> },
        ]} />
      <Section title="Invite a member">
        <SendForm button="Send the invitation" send={invite}>
          <TextInput type="email" name="email" label="E-mail address" required withAsterisk={false} maxLength={254} description="The address that they sign in with" />
          <NativeSelect name="role" label="Role" data={roles} />
          <TextInput name="days" label="Days until it ends" type="number" min={1} max={30} defaultValue={7} required withAsterisk={false} />
        </SendForm>
      </Section>
      <Section title="Invitations">
        <Paged<Invitation> name={["invitations", project]} caption="Invitations to the project" keyOf={(i) => i.id ?? ""} empty="There is no invitation."
          read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/invitations", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
          columns={[
            { label: "For", header: true, cell: (i) => i.email || i.subject },
            { label: "Role", cell: (i) => i.role },
            { label: "State", cell: (i) => <Status of={i.status} /> },
            { label: "Ends", cell: (i) => <Time at={i.expires_at} /> },
            {
              label: "Action", cell: (i) => i.status === "pending" && (
                <Ask small danger title="Revoke the invitation" button="Revoke" label={`Revoke: ${i.email ?? i.subject ?? ""}`} send={async () => {
                  await call(() => client.DELETE("/api/v1/projects/{id}/invitations/{invitation_id}", { params: { path: { id: project, invitation_id: i.id ?? "" } } }));
                  return "The invitation is revoked.";
                }}><Text>It can no longer be accepted.</Text></Ask>
              ),
            },
          ]} />
      </Section>
      <Section title="Groups of your organisation">
        <Loaded query={groups}>
          {(list) => <DataTable caption="Roles of groups" rows={list} keyOf={(g) => g.group ?? ""} empty="No group has a role. Everybody in a group that has one is a member of the project." columns={[{ label: "Group", header: true, cell: (g) => g.group }, { label: "Role", cell: (g) => g.role }]} />}
        </Loaded>
      </Section>
    </>
  );
}

function MemberActions({ project, member: m }: { project: string; member: Member }) {
  const path = { id: project, member_id: m.id ?? "" };
  const name = m.name || m.subject || "";
  return (
    <div className="buttons">
      <Ask small title={`Role of ${name}`} button="Change the role" opener="Role" label={`Change the role: ${name}`} send={async (given) => {
        await call(() => client.PATCH("/api/v1/projects/{id}/members/{member_id}", { params: { path, header: ifMatch(m.version) }, body: { role: given["role"] ?? "" } }));
        return "The role is changed.";
      }}><NativeSelect name="role" label="Role" data={roles} defaultValue={m.role} /></Ask>
      <Ask small danger title={`Remove ${name}`} button="Remove" label={`Remove: ${name}`} send={async () => {
        await call(() => client.DELETE("/api/v1/projects/{id}/members/{member_id}", { params: { path, header: ifMatch(m.version) } }));
        return "The member is removed.";
      }}><Text>Their keys are taken off the nodes of the project, and their tokens end. Sessions on nodes that are open stay open.</Text></Ask>
    </div>
  );
}
