import { Alert, Anchor, Button, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { call, client } from "../../api/client";
import { isRefused, moneyIsHidden, ratePerHour, useAllocations, useBalance, useKeys, useUsage } from "../api";
import { DataTable } from "../parts/DataTable";
import { Facts, Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText, Money } from "../parts/Money";
import { Status, words } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { projectHref } from "../route";
import { AllocationTable } from "./Allocations";

/** Overview shows what a project has and what it costs. */
export function Overview({ project }: PageProps) {
  const allocations = useAllocations(project);
  const keys = useKeys(project);
  return (
    <>
      <Heading side={<Button component="a" href={projectHref(project, "/catalogue")}>Order a node</Button>}>Overview</Heading>
      {keys.data?.length === 0 && (
        <Alert color="yellow" title="The project has no SSH key">
          A node lets in only the keys that it is ordered with. <Anchor href={projectHref(project, "/keys")}>Add your key</Anchor> before you order.
        </Alert>
      )}
      <Section title="Balance"><Funds project={project} /></Section>
      <Section title="Allocations" side={<Anchor href={projectHref(project, "/allocations")}>All allocations</Anchor>}>
        <Loaded query={allocations}>
          {(list) => <AllocationTable project={project} rows={list.filter((a) => a.status !== "released" && a.status !== "failed")} empty="The project has no node now." />}
        </Loaded>
      </Section>
      <Section title="Notices"><Newest project={project} /></Section>
    </>
  );
}

/** Funds shows the balance, what runs costs, and for how long the balance lasts at that rate. */
export function Funds({ project }: { project: string }) {
  const balance = useBalance(project);
  const usage = useUsage(project);
  if (isRefused(balance)) return <Text c="dimmed">{moneyIsHidden}</Text>;
  return (
    <Loaded query={balance}>
      {(b) => {
        const rate = ratePerHour(usage.data ?? []);
        return (
          <>
            <Facts facts={[
              ["Balance", <Money minor={b.balance_minor} of={b} />],
              ["Available", <Money minor={b.available_minor} of={b} />],
              ["Held back for nodes that run", (b.held_minor ?? 0) > 0 && <Money minor={b.held_minor} of={b} />],
              ["State", b.charging ? <Status of={b.state} /> : "nothing is charged: no price is in force"],
              ["Cost now", rate > 0 && `${amountText(rate, b)} an hour`],
              ["Lasts, if only this project uses it", rate > 0 && lasts(b.balance_minor ?? 0, rate)],
              ["Nodes are released", b.grace_ends_at && <Time at={b.grace_ends_at} />],
            ]} />
            {b.charging && b.state !== "ok" && <Alert color="orange" title={`The balance is ${words(b.state)}`}>Nodes are released when the balance is used up. <Anchor href={projectHref(project, "/balance")}>Top up</Anchor></Alert>}
          </>
        );
      }}
    </Loaded>
  );
}

/** lasts says for how long a balance pays at a rate per hour. */
function lasts(balance: number, rate: number): string {
  const hours = Math.max(0, balance / rate);
  return hours < 48 ? `${hours.toFixed(1)} hours` : `${(hours / 24).toFixed(1)} days`;
}

const newestNotices = 5;

function Newest({ project }: { project: string }) {
  const notices = useQuery({ queryKey: ["notices", project, "newest"], queryFn: () => call(() => client.GET("/api/v1/projects/{id}/notices", { params: { path: { id: project }, query: { limit: newestNotices } } })) });
  return (
    <Loaded query={notices}>
      {(page) => (
        <DataTable caption="Newest notices" rows={page.data ?? []} keyOf={(n) => n.id ?? ""} empty="There is no notice." columns={[
          { label: "Notice", header: true, cell: (n) => <Text fw={400}>{n.message}</Text> },
          { label: "When", cell: (n) => <Time at={n.created_at} /> },
        ]} />
      )}
    </Loaded>
  );
}
