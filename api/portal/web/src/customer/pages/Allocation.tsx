import { Alert, Code, Progress, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { duration } from "../../serverTime";
import { isMoving, isRefused, later, moneyIsHidden, ratePerHour, soon, useBalance, useUsage } from "../api";
import { Copy } from "../parts/Copy";
import { DataTable } from "../parts/DataTable";
import { Facts, Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText } from "../parts/Money";
import { Ask } from "../parts/SendForm";
import { Status, words } from "../parts/Status";
import { Time } from "../parts/Time";
import { tagsOf, tagsText } from "../parts/tags";
import type { PageProps } from "../pages";
import { stageText } from "./Allocations";

type AllocationView = Schemas["Allocation"];

/** AllocationPage follows one allocation from its order to its end. */
export function AllocationPage({ project, id }: PageProps) {
  const query = useQuery({
    queryKey: ["allocations", project, "one", id], refetchInterval: (q) => (q.state.data && !isMoving(q.state.data) ? later : soon),
    queryFn: () => call(() => client.GET("/api/v1/projects/{id}/allocations/{allocation_id}", { params: { path: { id: project, allocation_id: id } } })),
  });
  const queries = useQueryClient();
  const status = query.data?.status;
  useEffect(() => { void queries.invalidateQueries({ queryKey: ["usage", project] }); }, [queries, project, status]);
  return (
    <Loaded query={query}>
      {(a) => (
        <>
          <Heading side={<Status of={a.status} />}>{`Allocation: ${a.name || a.id || ""}`}</Heading>
          <div className="buttons">
            {a.allowed_actions?.includes("update") && <Edit project={project} allocation={a} />}
            {a.allowed_actions?.includes("release") && <Release project={project} allocation={a} />}
          </div>
          <div role="status" className="section">{a.progress ? <Under progress={a.progress} status={a.status} /> : null}</div>
          {a.failure_message && <Alert color="red" title="It has failed">{a.failure_message}</Alert>}
          {a.status === "release_failed" && <Alert color="orange" title="The release has failed">Your access is {words(a.access)}. Nothing is charged from now on. The operators are told; you can try the release again.</Alert>}
          {a.connection && <Section title="Connection"><Connection connection={a.connection} /></Section>}
          <Section title="Cost"><Cost project={project} id={id} ended={a.status !== "active"} /></Section>
          <Section title="Facts"><AllocationFacts allocation={a} /></Section>
          <Section title="Timeline"><Timeline allocation={a} /></Section>
          <Section title="SSH keys">
            <DataTable caption="Keys that may log in, and former ones" rows={a.ssh_keys ?? []} keyOf={(k) => k.fingerprint ?? ""} empty="No key may log in." columns={[
              { label: "Fingerprint", header: true, cell: (k) => <Code>{k.fingerprint}</Code> },
              { label: "Accepted by the node", cell: (k) => <Time at={k.accepted_at} /> },
              { label: "Withdrawn", cell: (k) => <Time at={k.withdrawn_at} /> },
              { label: "Refused by the node", cell: (k) => <Time at={k.refused_at} /> },
            ]} />
          </Section>
        </>
      )}
    </Loaded>
  );
}

/** Under shows how far the job is that is under way, and when it will end. */
function Under({ progress, status }: { progress: Schemas["AllocationProgress"]; status: string | undefined }) {
  const eta = progress.eta;
  return (
    <Stack gap="xs">
      <Text>{words(status)}: {stageText(progress)} ({progress.stages_done ?? 0} of {progress.stages ?? 0} stages are done)</Text>
      <Progress value={progress.percent ?? 0} aria-label="Progress" size="lg" />
      <Text size="sm" c="dimmed">
        {eta?.p50_seconds !== undefined ? `About ${duration(eta.p50_seconds)} left, and with nine of ten at most ${duration(eta.p90_seconds ?? eta.p50_seconds)}.` : eta?.reason}
        {eta?.overdue ? " The current stage takes longer than usual." : ""}
      </Text>
    </Stack>
  );
}

// What may stand in a command: a server that is hostile must not put options or further commands there.
const isHost = (text: string) => /^[A-Za-z0-9][A-Za-z0-9.:_-]*$/.test(text);
const isUser = (text: string) => /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(text);

function Connection({ connection: c }: { connection: Schemas["AllocationConnection"] }) {
  const safe = isHost(c.host ?? "") && isUser(c.user ?? "");
  const port = c.port && c.port !== 22 ? ` -p ${c.port}` : "";
  return (
    <Facts facts={[
      ["Log in with", safe && <Copy label="the command" value={`ssh${port} ${c.user}@${c.host}`} />],
      ["Host", c.host],
      ["Port", c.port],
      ["User", c.user],
      ["Host key", c.host_key_sha256 && <Copy label="the fingerprint of the host key" value={c.host_key_sha256} />],
      ["Line for known_hosts", c.host_key && <Copy label="the line for known_hosts" value={c.host_key} />],
      ["Since", <Time at={c.since} />],
    ]} />
  );
}

/** Cost shows what an allocation has cost so far, and what it costs an hour. */
function Cost({ project, id, ended }: { project: string; id: string; ended: boolean }) {
  const usage = useUsage(project, id);
  const balance = useBalance(project);
  if (isRefused(usage)) return <Text c="dimmed">{moneyIsHidden}</Text>;
  return (
    <Loaded query={usage}>
      {(segments) => {
        const of = { currency: segments[0]?.currency ?? balance.data?.currency, exponent: balance.data?.exponent };
        const rate = ratePerHour(segments);
        if (segments.every((s) => !s.start_time)) return <Text c="dimmed">Nothing is charged before you can log in.</Text>;
        return (
          <Facts facts={[
            ["Cost so far", amountText(segments.reduce((sum, s) => sum + (s.cost_minor ?? 0), 0), of)],
            ["Cost an hour", !ended && amountText(rate, of)],
            ["After the end", ended && "A node is charged for at least ten minutes. Beyond that, nothing more is charged."],
          ]} />
        );
      }}
    </Loaded>
  );
}

function AllocationFacts({ allocation: a }: { allocation: AllocationView }) {
  return (
    <Facts facts={[
      ["Id", <Copy label="the id" value={a.id ?? ""} />],
      ["SKU", a.sku],
      ["Condition", a.condition && <><Status of={a.condition} /> {a.condition_reason}</>],
      ["Tags", tagsText(a.tags, ", ")],
      ["Site", a.topology?.site],
      ["Rack", a.topology?.rack],
      ["System", a.image && [a.image.name, a.image.version].filter(Boolean).join(" ")],
      ["Network", [words(a.network?.kind), a.network?.cidr].filter(Boolean).join(" ")],
      ["Waits for a node until", a.status === "requested" && a.queue_deadline_at && <Time at={a.queue_deadline_at} />],
      ["Released by itself", a.expires_at && !a.released_at && <Time at={a.expires_at} />],
      ["Access", a.access],
      ["Outcome", words(a.outcome)],
      ["Certificate of the erasure", a.certificate_id && <Code>{a.certificate_id}</Code>],
    ]} />
  );
}

function Timeline({ allocation: a }: { allocation: AllocationView }) {
  const steps: [string, string | undefined][] = [["Ordered", a.requested_at], ["You can log in", a.start_time], ["Release asked for", a.releasing_at], ["Ended", a.released_at]];
  return <ol className="timeline">{steps.filter(([, at]) => at).map(([name, at]) => <li key={name}>{name} <Time at={at} /></li>)}</ol>;
}

function Edit({ project, allocation: a }: { project: string; allocation: AllocationView }) {
  return (
    <Ask title="Change name and tags" button="Save" opener="Change name and tags" send={async (given) => {
      await call(() => client.PATCH("/api/v1/projects/{id}/allocations/{allocation_id}", {
        params: { path: { id: project, allocation_id: a.id ?? "" }, header: { "If-Match": `"${a.version ?? 0}"` } }, body: { name: given["name"] ?? "", tags: tagsOf(given["tags"]) },
      }));
      return "It is saved.";
    }}>
      <TextInput name="name" label="Name" defaultValue={a.name} maxLength={100} data-autofocus />
      <Textarea name="tags" label="Tags" defaultValue={tagsText(a.tags, "\n")} rows={4} maxLength={12000} description="One KEY=VALUE on each line" />
    </Ask>
  );
}

function Release({ project, allocation: a }: { project: string; allocation: AllocationView }) {
  const name = a.name || a.id || "";
  return (
    <Ask danger stepUp title={`Release ${name}`} button="Release the node" opener="Release" send={async (given) => {
      await call(() => client.POST("/api/v1/projects/{id}/allocations/{allocation_id}/release", { params: { path: { id: project, allocation_id: a.id ?? "" } }, body: { reason: given["reason"] || undefined } }));
      return "The release has begun.";
    }}>
      <Text>Your access ends at once, and open sessions are closed. Then every drive of the node is erased and a certificate is written. This cannot be undone: save what you need first.</Text>
      <Text>Charging ends when your access has ended. A node is charged for at least ten minutes.</Text>
      <Textarea name="reason" label="Reason" rows={2} maxLength={500} description="Optional; it is kept in the log of the project" data-autofocus />
    </Ask>
  );
}
