import { options, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asProblem } from "./api/problem";
import type { Problem } from "./api/problem";
import { startClock } from "./clock";
import { announce, announced, liveStatus, startLive } from "./live";
import { pages } from "./pages";
import { closeDialogs, DialogHost } from "./parts/Dialog";
import { Heading } from "./parts/Facts";
import { Layout } from "./parts/Layout";
import { ProblemText } from "./parts/ProblemText";
import { SignInPage } from "./parts/SignInPage";
import "./parts/StepUp";
import { matchPath, navigate, hrefOf, place, watchPlace } from "./router";
import { showHidden } from "./parts/hidden";
import { hasRole, readSession, session } from "./session";
import { text } from "./text";

function App() {
  const [problem, setProblem] = useState<Problem>();
  const begin = () => { readSession().then(() => setProblem(undefined), (error: unknown) => setProblem(asProblem(error))); };
  useEffect(begin, []);
  const who = session.value;
  const principal = who?.principal.id;
  useEffect(() => {
    closeDialogs();
    if (principal === undefined) return;
    startLive();
    announce(principal);
  }, [principal]);
  const other = announced.value;
  useEffect(() => {
    // Another user has signed in in another tab: this tab has the same cookie.
    if (other !== "" && session.value && other !== session.value.principal.id) readSession().catch(() => undefined);
  }, [other]);
  useEffect(closeDialogs, [place.value.path]);
  const stream = liveStatus.value;
  useEffect(() => {
    // Another tab has signed in or out, or the session has ended: all tabs share it.
    if ((stream === "signed-out" && session.value) || (stream === "open" && session.value === null)) readSession().catch(() => undefined);
  }, [stream]);
  if (problem) return <main class="sign-in"><h1>{text.product}</h1><ProblemText problem={problem} again={begin} /></main>;
  if (who === undefined) return <main class="sign-in" aria-busy="true"><p role="status">{text.loading}</p></main>;
  if (who === null) return <SignInPage />;
  return <><Current key={who.principal.id} /><DialogHost /></>;
}

function Current() {
  const path = place.value.path;
  const isCustomer = !hasRole("viewer");
  useEffect(() => { if (isCustomer) window.location.reload(); }, [isCustomer]); // a new document has the customers' portal
  useEffect(() => { if (path === "/" && !isCustomer) navigate(hrefOf("/nodes"), { replace: true }); }, [path, isCustomer]);
  if (isCustomer || path === "/") return null;
  for (const page of pages) {
    const params = matchPath(page.path, path);
    if (params && hasRole(page.role ?? "viewer")) {
      const View = page.view;
      return <Layout title={page.title}><View key={page.path + Object.values(params).join()} params={params} /></Layout>;
    }
  }
  return <Layout title={text.notFound.title}><Heading title={text.notFound.title} /><p>{text.notFound.detail}</p></Layout>;
}

// Every text of every page passes here, wherever it comes from.
const before = options.vnode;
options.vnode = (vnode) => {
  const props = vnode.props as { children?: unknown };
  if (props.children !== undefined) props.children = showHidden(props.children);
  before?.(vnode);
};

const root = document.getElementById("app");
if (root) {
  watchPlace();
  startClock();
  root.replaceChildren();
  render(<App />, root);
}
