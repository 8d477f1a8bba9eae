import { call, client } from "../api/client";
import { serverNow } from "../clock";
import { FleetChart } from "../parts/FleetChart";
import { Heading, Section } from "../parts/Facts";
import { FilterForm } from "../parts/list";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { StageChart } from "../parts/StageChart";
import { Time } from "../parts/Time";
import { place } from "../router";
import { text, words } from "../text";

const days = ["1", "7", "31"];
const day = 86_400_000;

/** Statistics shows the fleet by state over time, and how long the stages of jobs take. */
export function Statistics() {
  const given = place.value.query.get("days") ?? "";
  const span = days.includes(given) ? given : "7";
  return (
    <>
      <Heading title={text.stats.title} />
      <FilterForm fields={[{ name: "days", label: text.stats.span, any: text.stats.days("7"), options: days.filter((d) => d !== "7").map((d) => ({ value: d, label: text.stats.days(d) })) }]} />
      <Section title={text.stats.fleet}><FleetStates span={span} /></Section>
      <Section title={text.stats.stages}><StageTimes span={span} /></Section>
    </>
  );
}

/** sinceOf returns the begin of the window. The API takes at most 31 days; a minute is left for slow clocks. */
function sinceOf(span: string): string {
  return new Date(serverNow() - Number(span) * day + (span === "31" ? 60_000 : 0)).toISOString();
}

function FleetStates({ span }: { span: string }) {
  const read = useRead(span, () => call(() => client.GET("/api/v1/stats/fleet", { params: { query: { since: sinceOf(span) } } })));
  return (
    <>
      <ProblemText problem={read.problem} again={() => void read.again()} />
      {read.loading && !read.data && <p role="status">{text.loading}</p>}
      {read.data && <FleetChart points={read.data.data ?? []} />}
      {read.data && <p class="quiet">{text.time.readAt} <Time at={read.at} stale /></p>}
    </>
  );
}

function StageTimes({ span }: { span: string }) {
  const read = useRead(span, () => call(() => client.GET("/api/v1/stats/stages", { params: { query: { since: sinceOf(span) } } })));
  const all = read.data?.data ?? [];
  const kinds = [...new Set(all.map((s) => s.kind ?? ""))];
  return (
    <>
      <ProblemText problem={read.problem} again={() => void read.again()} />
      {read.loading && !read.data && <p role="status">{text.loading}</p>}
      {read.data && kinds.length === 0 && <p class="quiet">{text.stats.noJobs}</p>}
      {kinds.map((kind) => <StageChart key={kind} kind={words(kind)} stages={all.filter((s) => s.kind === kind)} />)}
    </>
  );
}
