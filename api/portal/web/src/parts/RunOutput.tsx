import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { automation } from "../textAutomation";
import { ProblemText } from "./ProblemText";
import { useRunLog } from "./runLog";
import type { LogPart } from "./runLog";

const near = 40; // pixels from the end within which the newest line is followed

/** RunOutput shows the output of a run as it comes. It calls moved when another step writes, and at the end. */
export function RunOutput({ runId, moved }: { runId: string; moved: () => void }) {
  const log = useRunLog(runId);
  const isEnded = log.status === "ended";
  const step = log.parts.at(-1)?.step;
  useEffect(() => { if (isEnded || step !== undefined) moved(); }, [isEnded, step]);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    const shown = box.current;
    if (shown && follows.current) shown.scrollTop = shown.scrollHeight;
  }, [log]);
  const scrolled = () => {
    const shown = box.current;
    if (shown) follows.current = shown.scrollHeight - shown.scrollTop - shown.clientHeight < near;
  };
  const texts = automation.log;
  return (
    <>
      <p class="quiet"><span role="status">{texts[log.status]}</span>. {texts.follow}</p>
      <ProblemText problem={log.problem} />
      {log.gone && <p>{texts.gone}</p>}
      {log.dropped && <p>{texts.dropped(runId)}</p>}
      <div class="log" role="log" aria-live="off" aria-label={texts.title} aria-busy={log.status === "connecting"} tabIndex={0} ref={box} onScroll={scrolled}>
        {log.parts.length === 0 && <p class="quiet">{log.status === "ended" ? texts.noneEnded : texts.none}</p>}
        {log.parts.map((part, i) => <Part key={part.key} part={part} before={log.parts[i - 1]} />)}
      </div>
    </>
  );
}

function Part({ part, before }: { part: LogPart; before: LogPart | undefined }) {
  const continued = before?.step === part.step && before.attempt === part.attempt && before.stream === part.stream;
  return (
    <>
      {!continued && <p class="log-source">{automation.log.part(part.step, part.attempt, part.stream)}</p>}
      <pre class={part.stream === "stderr" ? "log-part log-part--stderr" : "log-part"}>{part.text}</pre>
    </>
  );
}
