import { useId } from "preact/hooks";
import type { Schemas } from "../api/client";
import { billing } from "../textBilling";
import { money } from "./money";

type Day = Schemas["UsageDay"];

const width = 720;
const height = 200;
const left = 90;
const right = 12;
const top = 10;
const bottom = 26;
const dayLength = 86_400_000;

/** CostChart draws a bar for what each day has cost, from the first day that has a cost to the last. */
export function CostChart({ rows, exponent }: { rows: Day[]; exponent: number | undefined }) {
  const id = useId();
  const totals = new Map<string, number>();
  for (const r of rows) totals.set(r.day ?? "", (totals.get(r.day ?? "") ?? 0) + (r.cost_minor ?? 0));
  const known = [...totals.keys()].sort();
  const begin = Date.parse(known[0] ?? "");
  const end = Date.parse(known.at(-1) ?? "");
  if (Number.isNaN(begin) || Number.isNaN(end)) return <p class="quiet">{billing.noCost}</p>;
  const days = Math.round((end - begin) / dayLength) + 1;
  const highest = Math.max(1, ...totals.values());
  const step = (width - left - right) / days;
  const tall = (cost: number) => (Math.max(0, cost) / highest) * (height - top - bottom);
  const amount = (minor: number) => money(minor, exponent, rows[0]?.currency);
  const total = [...totals.values()].reduce((sum, cost) => sum + cost, 0);
  return (
    <figure class="figure">
      <figcaption id={id}>{billing.chart(known[0] ?? "", known.at(-1) ?? "", amount(total))}</figcaption>
      <div class="chart-scroll" tabIndex={0} role="group" aria-labelledby={id}>
        <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby={id}>
          {[0, highest].map((n) => (
            <g key={n}><line class="chart-grid" x1={left} x2={width - right} y1={height - bottom - tall(n)} y2={height - bottom - tall(n)} /><text x={left - 6} y={height - bottom - tall(n) + 4} text-anchor="end">{amount(n)}</text></g>
          ))}
          {known.map((day) => {
            const cost = tall(totals.get(day) ?? 0);
            const at = left + Math.round((Date.parse(day) - begin) / dayLength) * step;
            return <rect key={day} class="chart-p50" x={at + step * 0.1} y={height - bottom - cost} width={Math.min(step * 0.8, 60)} height={cost} />;
          })}
          <text x={left} y={height - 8}>{known[0]}</text>
          {days > 1 && <text x={width - right} y={height - 8} text-anchor="end">{known.at(-1)}</text>}
        </svg>
      </div>
    </figure>
  );
}
