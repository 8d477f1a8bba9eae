import { Component } from "react";
import type { ReactNode } from "react";
import { ProblemError } from "../../api/problem";
import { problemText } from "../../textProblem";
import { Failed } from "./Failed";

/**
 * Caught shows why a page could not be shown, in its place: mostly its script is not there since the
 * server was updated. A browser keeps a script that failed to load, so only a new document helps.
 */
export class Caught extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    const detail = error instanceof Error ? `${problemText.notLoadedDetail} (${error.message})` : problemText.notLoadedDetail;
    return <Failed error={new ProblemError({ status: 0, title: problemText.notLoaded, detail })} again={() => window.location.reload()} />;
  }
}
