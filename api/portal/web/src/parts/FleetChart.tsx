import { useId } from "preact/hooks";
import type { Schemas } from "../api/client";
import { text, words } from "../text";
import { Table } from "./Table";

type Point = Schemas["FleetPoint"];

const width = 720;
const height = 240;
const left = 44;
const right = 12;
const top = 10;
const bottom = 26;
const mostLines = 8; // as many dash patterns as can be told apart

/** order puts the states that an operator asks for first where they have room. */
const order = ["active", "offline", "quarantined", "retired", "removing", "enrolling", "bootstrap_issued", "draining"];

/** FleetChart draws a line for each state. Lines differ in their pattern, and the end of each is named. */
export function FleetChart({ points }: { points: Point[] }) {
  const id = useId();
  const totals = new Map<string, number>();
  for (const p of points) for (const [state, n] of Object.entries(p.states ?? {})) totals.set(state, Math.max(totals.get(state) ?? 0, n));
  const known = [...totals.keys()].filter((s) => (totals.get(s) ?? 0) > 0);
  const states = [...order.filter((s) => known.includes(s)), ...known.filter((s) => !order.includes(s)).sort()];
  if (points.length < 2 || states.length === 0) return <p class="quiet">{text.stats.noNodes}</p>;
  const drawn = states.slice(0, mostLines);
  const highest = niceMost(Math.max(...drawn.map((s) => totals.get(s) ?? 0)));
  const begin = Date.parse(points[0]?.at ?? "");
  const end = Date.parse(points.at(-1)?.at ?? "");
  const x = (at: string | undefined) => left + ((Date.parse(at ?? "") - begin) / Math.max(1, end - begin)) * (width - left - right);
  const y = (n: number) => height - bottom - (n / highest) * (height - top - bottom);
  const line = (state: string) => points.map((p) => `${x(p.at).toFixed(1)},${y(p.states?.[state] ?? 0).toFixed(1)}`).join(" ");
  const last = points.at(-1)?.states ?? {};
  return (
    <figure class="figure">
      <figcaption id={id}>{text.stats.fleetCaption(dayText(points[0]?.at), dayText(points.at(-1)?.at))}</figcaption>
      <div class="chart-scroll" tabIndex={0} role="group" aria-labelledby={id}>
        <svg class="chart" viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby={id}>
          {[0, highest / 2, highest].map((n) => (
            <g key={n}><line class="chart-grid" x1={left} x2={width - right} y1={y(n)} y2={y(n)} /><text x={left - 6} y={y(n) + 4} text-anchor="end">{Math.round(n)}</text></g>
          ))}
          <text x={left} y={height - 8}>{dayText(points[0]?.at)}</text>
          <text x={width - right} y={height - 8} text-anchor="end">{dayText(points.at(-1)?.at)}</text>
          {drawn.map((s, i) => <polyline key={s} class={`chart-line chart-line--${i}`} points={line(s)} />)}
        </svg>
      </div>
      <ul class="legend">
        {drawn.map((s, i) => (
          <li key={s}><svg class="legend-mark" viewBox="0 0 36 8" aria-hidden="true"><line class={`chart-line chart-line--${i}`} x1="0" x2="36" y1="4" y2="4" /></svg> {words(s)}: {last[s] ?? 0}</li>
        ))}
      </ul>
      {states.length > drawn.length && <p class="quiet">{text.stats.notDrawn(states.slice(mostLines).map(words).join(", "))}</p>}
      <details>
        <summary>{text.stats.figures}</summary>
        <Table caption={text.stats.fleet} rows={[...points].reverse()} keyOf={(p) => p.at ?? ""} columns={[
          { label: text.stats.at, header: true, cell: (p) => dayText(p.at) },
          ...states.map((s) => ({ label: words(s), number: true, cell: (p: Point) => p.states?.[s] ?? 0 })),
        ]} />
      </details>
    </figure>
  );
}

/** niceMost returns an even number at or above the highest value, so that the half is a whole number. */
function niceMost(most: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(2, most)));
  const step = [1, 2, 4, 6, 8, 10].find((s) => s * power >= most) ?? 10;
  return Math.max(2, step * power);
}

/** dayText writes an instant to the minute, in UTC as the API does. */
function dayText(at: string | undefined): string {
  return at ? `${new Date(at).toISOString().slice(0, 16).replace("T", " ")} UTC` : "";
}
