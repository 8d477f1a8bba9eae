import { useId } from "preact/hooks";
import type { Schemas } from "../api/client";
import { duration } from "../clock";
import { text, words } from "../text";
import { Table } from "./Table";

type Stage = Schemas["StageStats"];

const width = 720;
const left = 200;
const right = 90;
const row = 30;

/** StageChart draws two bars for each stage: the median is filled, the 90th percentile is an outline. */
export function StageChart({ kind, stages }: { kind: string; stages: Stage[] }) {
  const id = useId();
  const longest = Math.max(1, ...stages.map((s) => s.p90_seconds ?? 0));
  const length = (seconds: number | undefined) => Math.max(1, ((seconds ?? 0) / longest) * (width - left - right));
  const height = stages.length * row + 6;
  const most = Math.max(0, ...stages.map((s) => s.jobs ?? 0));
  return (
    <figure class="figure">
      <figcaption id={id}>{text.stats.stagesCaption(kind, most)}</figcaption>
      <div class="chart-scroll" tabIndex={0} role="group" aria-labelledby={id}>
        <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby={id}>
          {stages.map((s, i) => (
            <g key={s.stage}>
              <text x={left - 8} y={i * row + 19} text-anchor="end">{words(s.stage)}</text>
              <rect class="chart-p90" x={left} y={i * row + 5} width={length(s.p90_seconds)} height={20} />
              <rect class="chart-p50" x={left} y={i * row + 9} width={length(s.p50_seconds)} height={12} />
              <text x={left + length(s.p90_seconds) + 6} y={i * row + 19}>{duration(s.p90_seconds ?? 0)}</text>
            </g>
          ))}
        </svg>
      </div>
      <p class="quiet">{text.stats.bars}</p>
      <details>
        <summary>{text.stats.figures}</summary>
        <Table caption={text.stats.stagesCaption(kind, most)} rows={stages} keyOf={(s) => s.stage ?? ""} columns={[
          { label: text.plan.stage, header: true, cell: (s) => words(s.stage) },
          { label: text.stats.p50, number: true, cell: (s) => duration(s.p50_seconds ?? 0) },
          { label: text.stats.p90, number: true, cell: (s) => duration(s.p90_seconds ?? 0) },
          { label: text.stats.jobs, number: true, cell: (s) => s.jobs },
        ]} />
      </details>
    </figure>
  );
}
