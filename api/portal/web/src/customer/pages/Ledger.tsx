import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { Anchor, Text } from "@mantine/core";
import { later, useBalance } from "../api";
import { Heading } from "../parts/Facts";
import { amountText } from "../parts/Money";
import { Paged } from "../parts/Paged";
import { words } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { projectHref } from "../route";

type Line = Schemas["LedgerLine"];

/** Ledger lists what was charged and credited. */
export function Ledger({ project }: PageProps) {
  const { data: balance } = useBalance(project);
  return (
    <>
      <Heading>Ledger</Heading>
      <Text>What was charged and credited in this project, newest first.</Text>
      <Paged<Line> name={["ledger", project]} caption="Ledger" every={later} keyOf={(l) => String(l.number)} empty="Nothing was posted."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/ledger", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Posted", header: true, cell: (l) => <Time at={l.posted_at} /> },
          { label: "Kind", cell: (l) => words(l.kind) },
          { label: "Amount", right: true, cell: (l) => amountText(l.amount_minor, { currency: l.currency, exponent: balance?.exponent }) },
          { label: "Charged until", cell: (l) => <Time at={l.effective_at} /> },
          { label: "Allocation", cell: (l) => l.allocation_id && <Anchor href={projectHref(project, `/allocations/${encodeURIComponent(l.allocation_id)}`)}>{l.allocation_id}</Anchor> },
          { label: "Reason", cell: (l) => l.reason },
        ]} />
    </>
  );
}
