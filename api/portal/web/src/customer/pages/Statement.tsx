import { Button, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, client } from "../../api/client";
import { ProblemError } from "../../api/problem";
import { serverNow } from "../../serverTime";
import { later } from "../api";
import { DataTable } from "../parts/DataTable";
import { Failed } from "../parts/Failed";
import { Facts, Heading } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText } from "../parts/Money";
import { words } from "../parts/Status";
import { Day } from "../parts/Time";
import type { PageProps } from "../pages";

const notRead = () => new ProblemError({ status: 0, title: "The statement could not be read", detail: "The answer has another form than was asked for. Read it again." });

/** Statement shows and saves what was posted in a month. The browser prints the page without the menu. */
export function Statement({ project }: PageProps) {
  const [month, setMonth] = useState(() => new Date(serverNow()).toISOString().slice(0, 7));
  const path = { id: project, month };
  const query = useQuery({
    queryKey: ["statement", project, month], enabled: /^\d{4}-\d{2}$/.test(month), refetchInterval: later,
    queryFn: async () => {
      const read = await call(() => client.GET("/api/v1/projects/{id}/statements/{month}", { params: { path } }));
      if (typeof read === "string") throw notRead();
      return read;
    },
  });
  const save = useMutation({
    mutationFn: async () => {
      const rows = await call(() => client.GET("/api/v1/projects/{id}/statements/{month}", { params: { path, query: { format: "csv" } }, parseAs: "text" }));
      if (typeof rows !== "string") throw notRead();
      const name = `statement-${project}-${month}.csv`;
      const link = document.createElement("a");
      link.download = name;
      link.href = URL.createObjectURL(new Blob([rows], { type: "text/csv" }));
      link.click();
      URL.revokeObjectURL(link.href);
      return name;
    },
  });
  return (
    <>
      <Heading>{`Statement of ${month}`}</Heading>
      <div className="buttons">
        <TextInput type="month" label="Month" value={month} onChange={(e) => setMonth(e.currentTarget.value)} />
        <Button variant="default" onClick={() => save.mutate()}>Download as CSV</Button>
        <Button variant="default" onClick={() => window.print()}>Print</Button>
      </div>
      {save.isError && <Failed error={save.error} />}
      <div role="status">{save.isSuccess && <Text>{save.data} is saved.</Text>}</div>
      <Loaded query={query}>
        {(s) => (
          <>
            <Facts facts={[
              ["Project", s.project_id],
              ["Billing account", s.billing_account_id],
              ["Month (UTC)", s.month],
              ["Total", <strong>{amountText(s.total_minor, s)}</strong>],
              ["Final", s.final ? "yes" : "no: the month has not ended"],
            ]} />
            {s.complete === false && <Text c="red">The statement was cut short: it has more lines than are shown. Download it as CSV.</Text>}
            <DataTable caption="What was posted in the month, by allocation and kind" rows={s.lines ?? []} keyOf={(l) => `${l.kind} ${l.allocation_id ?? ""}${l.instance_id ?? ""}`} empty="Nothing was posted in this month." columns={[
              { label: "Kind", header: true, cell: (l) => words(l.kind) },
              { label: "Allocation or instance", cell: (l) => l.allocation_id || l.instance_id || "the project as a whole" },
              { label: "Amount", right: true, cell: (l) => amountText(l.amount_minor, s) },
              { label: "Transactions", right: true, cell: (l) => l.transactions },
              { label: "First (UTC)", cell: (l) => <Day at={l.first_at} /> },
              { label: "Last (UTC)", cell: (l) => <Day at={l.last_at} /> },
            ]} />
          </>
        )}
      </Loaded>
    </>
  );
}
