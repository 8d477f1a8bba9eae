import { Loader } from "@mantine/core";
import { Suspense, useEffect } from "react";
import { hasPlatformRole } from "../api/session";
import { Elsewhere } from "./Elsewhere";
import { Caught } from "./parts/Caught";
import { Heading } from "./parts/Facts";
import { Failed } from "./parts/Failed";
import { matchPath } from "./place";
import { pages } from "./pages";
import { hrefOf, isFirstPage, navigate, usePlace } from "./route";
import { useSession } from "./session";
import { Shell } from "./Shell";
import { SignIn } from "./SignIn";
import { StepUp } from "./StepUp";

/** App shows the sign-in, or the page of the address to who is signed in. */
export function App() {
  const session = useSession();
  if (session.data === undefined) {
    if (session.isError) return <main className="alone"><h1>Slipway</h1><Failed error={session.error} again={() => void session.refetch()} /></main>;
    return <main className="alone" aria-busy="true"><Loader aria-label="Loading" /></main>;
  }
  if (session.data === null) return <SignIn />;
  const isOperator = hasPlatformRole(session.data.principal.roles, "viewer");
  return <><Current isOperator={isOperator} /><StepUp method={session.data.method} /></>;
}

function Current({ isOperator }: { isOperator: boolean }) {
  const { path } = usePlace();
  const first = path === undefined && isFirstPage();
  useEffect(() => {
    if (!first) return;
    if (isOperator) window.location.reload(); // a new document has the operators' portal
    else navigate(hrefOf("/"), true);
  }, [first, isOperator]);
  if (first) return null;
  if (path === undefined) return <Elsewhere />;
  for (const page of pages) {
    const params = matchPath(page.path, path);
    if (!params) continue;
    const View = page.view;
    const project = params["project"];
    return (
      <Shell project={project}>
        <Caught key={path}>
          <Suspense fallback={<p role="status">Loading</p>}><View project={project ?? ""} id={params["id"] ?? ""} /></Suspense>
        </Caught>
      </Shell>
    );
  }
  return <Shell><Heading>Page not found</Heading><p>The portal has no page at this address. Choose one in the menu.</p></Shell>;
}
