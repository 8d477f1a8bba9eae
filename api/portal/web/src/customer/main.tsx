import { createTheme, MantineProvider, Modal } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { handlers } from "../api/client";
import { asProblem, isFinal } from "../api/problem";
import { App } from "./App";
import { startClock } from "./clock";
import { watchPlace } from "./route";

// The policy of the pages allows no style element. So Mantine's variables come from its static style
// sheet and from style.css, which changes some.
const theme = createTheme({
  respectReducedMotion: true,
  components: { Modal: Modal.extend({ defaultProps: { transitionProps: { duration: 0 } } }) },
});

const queries = new QueryClient({
  defaultOptions: {
    // A request without a network fails and is shown as failed. It is never sent later by itself.
    queries: { networkMode: "always", staleTime: 5_000, retry: (count, error) => count < 2 && !isFinal(asProblem(error)) && asProblem(error).status !== 401 },
    mutations: { networkMode: "always", retry: false },
  },
});

const root = document.getElementById("app");
if (root) {
  handlers.signedOut = () => window.location.reload(); // the first script asks who is signed in
  watchPlace();
  startClock();
  root.replaceChildren();
  createRoot(root).render(
    <StrictMode>
      <MantineProvider theme={theme} defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false}>
        <QueryClientProvider client={queries}><App /></QueryClientProvider>
      </MantineProvider>
    </StrictMode>,
  );
}
