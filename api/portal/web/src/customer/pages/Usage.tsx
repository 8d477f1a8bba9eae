import { Anchor, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { duration, serverNow } from "../../serverTime";
import { later, useBalance } from "../api";
import { DataTable } from "../parts/DataTable";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import type { Currency } from "../parts/Money";
import { amountText } from "../parts/Money";
import { Paged } from "../parts/Paged";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { projectHref } from "../route";

type Segment = Schemas["UsageSegment"];
type UsageDay = Schemas["UsageDay"];

const dayLength = 86_400_000;
const usualDays = 30;
const dayOf = (time: number) => new Date(time).toISOString().slice(0, 10);

/** Usage shows what each day has cost, and what was used at which rate. */
export function Usage({ project }: PageProps) {
  const balance = useBalance(project);
  const [from, setFrom] = useState(() => dayOf(serverNow() - usualDays * dayLength));
  const [to, setTo] = useState(() => dayOf(serverNow()));
  const days = useQuery({
    queryKey: ["usage-days", project, from, to], refetchInterval: later, enabled: from !== "" && to !== "",
    queryFn: async () => (await call(() => client.GET("/api/v1/projects/{id}/usage/days", { params: { path: { id: project }, query: { from, to } } }))).data ?? [],
  });
  const of = { currency: balance.data?.currency, exponent: balance.data?.exponent };
  const link = (id: string | undefined) => id ? <Anchor href={projectHref(project, `/allocations/${encodeURIComponent(id)}`)}>{id}</Anchor> : "";
  return (
    <>
      <Heading>Usage</Heading>
      <Section title="Cost per day">
        <div className="buttons">
          <TextInput type="date" label="From" value={from} onChange={(e) => setFrom(e.currentTarget.value)} />
          <TextInput type="date" label="To" value={to} onChange={(e) => setTo(e.currentTarget.value)} />
        </div>
        <Loaded query={days}>
          {(rows) => (
            <>
              <Bars rows={rows} of={of} />
              <DataTable caption="Cost per day (UTC)" rows={rows} keyOf={(d) => `${d.day} ${d.allocation_id ?? ""}${d.instance_id ?? ""}`} empty="Nothing was charged in these days." columns={[
                { label: "Day", header: true, cell: (d) => d.day },
                { label: "Cost", right: true, cell: (d) => amountText(d.cost_minor, { ...of, currency: d.currency }) },
                { label: "Charged for", cell: (d) => duration(d.seconds ?? 0) },
                { label: "Allocation or instance", cell: (d) => d.allocation_id ? link(d.allocation_id) : d.instance_id },
              ]} />
            </>
          )}
        </Loaded>
      </Section>
      <Section title="Segments">
        <Text c="dimmed">One line for each allocation or instance and each rate, newest first.</Text>
        <Paged<Segment> name={["usage", project, "pages"]} caption="Usage by rate" every={later} keyOf={(s) => `${s.usage_id} ${s.segment}`} empty="The project has used nothing."
          read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/usage", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
          columns={[
            { label: "Allocation or instance", header: true, cell: (s) => s.allocation_id ? link(s.allocation_id) : s.instance_id },
            { label: "Cost an hour", right: true, cell: (s) => amountText(s.rate_minor_per_hour, { ...of, currency: s.currency }) },
            { label: "Cost", right: true, cell: (s) => amountText(s.cost_minor, { ...of, currency: s.currency }) },
            { label: "From", cell: (s) => <Time at={s.start_time} /> },
            { label: "Until", cell: (s) => s.end_time ? <Time at={s.end_time} /> : s.start_time ? "it runs" : "not active yet" },
            { label: "Charged until", cell: (s) => <Time at={s.last_billed_at} /> },
          ]} />
      </Section>
    </>
  );
}

const width = 720;
const height = 180;
const left = 90;
const foot = 26;

/** Bars draws a bar for what each day has cost. The table below has the same figures. */
function Bars({ rows, of }: { rows: UsageDay[]; of: Currency }) {
  const totals = new Map<string, number>();
  for (const r of rows) totals.set(r.day ?? "", (totals.get(r.day ?? "") ?? 0) + (r.cost_minor ?? 0));
  const known = [...totals.keys()].sort();
  const begin = Date.parse(known[0] ?? "");
  const end = Date.parse(known.at(-1) ?? "");
  if (Number.isNaN(begin) || Number.isNaN(end)) return null;
  const days = Math.round((end - begin) / dayLength) + 1;
  const highest = Math.max(1, ...totals.values());
  const step = (width - left) / days;
  const total = [...totals.values()].reduce((sum, cost) => sum + cost, 0);
  return (
    <figure>
      <figcaption>From {known[0]} to {known.at(-1)}: {amountText(total, of)} in all</figcaption>
      <svg className="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Cost per day, ${amountText(total, of)} in all`}>
        <line className="chart-grid" x1={left} x2={width} y1={height - foot} y2={height - foot} />
        <text x={left - 6} y={16} textAnchor="end">{amountText(highest, of)}</text>
        {known.map((day) => {
          const tall = (Math.max(0, totals.get(day) ?? 0) / highest) * (height - foot - 10);
          return <rect key={day} className="chart-bar" x={left + Math.round((Date.parse(day) - begin) / dayLength) * step + step * 0.1} y={height - foot - tall} width={Math.min(step * 0.8, 60)} height={tall} />;
        })}
        <text x={left} y={height - 8}>{known[0]}</text>
      </svg>
    </figure>
  );
}
