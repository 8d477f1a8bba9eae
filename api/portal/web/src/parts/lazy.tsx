import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { text } from "../text";
import { Heading } from "./Facts";
import { ProblemText } from "./ProblemText";

/**
 * lazy returns a view whose code is loaded when it is first shown, so that the first view of the
 * portal stays small.
 */
export function lazy<P extends object>(title: string, load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let held: ComponentType<P> | undefined;
  return function LazyView(props: P) {
    const [view, setView] = useState<{ View: ComponentType<P> } | undefined>(held && { View: held });
    const [problem, setProblem] = useState<Problem>();
    useEffect(() => {
      let left = false;
      if (!view) load().then((View) => { held = View; if (!left) setView({ View }); }, (error: unknown) => { if (!left) setProblem(notLoaded(error)); });
      return () => { left = true; };
    }, []);
    if (view) return <view.View {...props} />;
    // A browser keeps a module that failed to load: only a new document asks for it again.
    return <><Heading title={title} />{problem ? <ProblemText problem={problem} again={() => window.location.reload()} /> : <p role="status">{text.loading}</p>}</>;
  };
}

/** notLoaded says what to do when the code of a page is not there, such as after an update. */
function notLoaded(error: unknown): Problem {
  return { ...asProblem(error), title: text.problem.notLoaded, detail: text.problem.notLoadedDetail };
}
