import { Anchor, Button, Card, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { useInvitations, useProjects } from "../api";
import { Failed } from "../parts/Failed";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { Status } from "../parts/Status";
import { Time } from "../parts/Time";
import { navigate, projectHref } from "../route";

/** Home lists the invitations and the projects of who is signed in. */
export function Home() {
  const projects = useProjects();
  const invitations = useInvitations();
  return (
    <>
      <Heading>Projects and invitations</Heading>
      <Section title="Invitations">
        <Loaded query={invitations}>
          {(list) => list.length === 0
            ? <Text c="dimmed">Nobody has invited you to a project that you are not a member of.</Text>
            : <Stack>{list.map((i) => <Invitation key={i.id} invitation={i} />)}</Stack>}
        </Loaded>
      </Section>
      <Section title="Your projects">
        <Loaded query={projects}>
          {(list) => list.length === 0
            ? <Text>You are a member of no project. Ask an owner of the project to invite the e-mail address that you sign in with, then accept the invitation here.</Text>
            : (
              <Stack>
                {list.map((p) => (
                  <Card key={p.id} withBorder>
                    <Group justify="space-between"><Anchor href={projectHref(p.id ?? "")} fw={600}>{p.name ?? ""}</Anchor><Status of={p.status} /></Group>
                    <Text size="sm" c="dimmed">{p.id}</Text>
                  </Card>
                ))}
              </Stack>
            )}
        </Loaded>
      </Section>
    </>
  );
}

function Invitation({ invitation }: { invitation: Schemas["Invitation"] }) {
  const queries = useQueryClient();
  const accept = useMutation({
    mutationFn: () => call(() => client.POST("/api/v1/invitations/{id}/accept", { params: { path: { id: invitation.id ?? "" } } })),
    onSuccess: async () => {
      await queries.invalidateQueries();
      if (invitation.project_id) navigate(projectHref(invitation.project_id));
    },
  });
  const project = invitation.project_name || invitation.project_id || "";
  return (
    <Card withBorder>
      <Text>You are invited to the project <strong>{project}</strong> ({invitation.project_id}) with the role {invitation.role}. Accept it only from a team that you know. The invitation ends <Time at={invitation.expires_at} />.</Text>
      {accept.isError && <Failed error={accept.error} />}
      <Group mt="sm"><Button onClick={() => accept.mutate()} aria-disabled={accept.isPending} aria-label={`Accept: ${project}`}>Accept</Button></Group>
    </Card>
  );
}
