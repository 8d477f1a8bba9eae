// The first script of the portal. It reads who is signed in and loads the application for them: the
// operators' or the customers'. A customer's browser loads nothing of the operators'.
import { ProblemError } from "./api/problem";
import { hasPlatformRole, request } from "./api/session";
import type { Session } from "./api/session";
import { base } from "./base";
import { customersBase } from "./customer/place";
import { problemText } from "./textProblem";

/** readRoles returns the roles of the platform that the session has, or undefined when nobody is signed in. */
async function readRoles(): Promise<string[] | undefined> {
  try {
    return (await request<Session>("GET", "/session")).principal.roles;
  } catch (error) {
    if (error instanceof ProblemError && error.problem.status === 401) return undefined;
    throw error;
  }
}

/** choose returns the application for who is signed in. The first page is the customers', who sign in there. */
function choose(roles: string[] | undefined): View {
  const path = window.location.pathname;
  if (path === customersBase || path.startsWith(customersBase + "/")) return VIEWS.customers;
  if (roles) return hasPlatformRole(roles, "viewer") ? VIEWS.operators : VIEWS.customers;
  return path === base || path === base + "/" ? VIEWS.customers : VIEWS.operators;
}

/** addLink adds a link element, and returns once its file is loaded or has failed to load. */
function addLink(rel: string, file: string): Promise<void> {
  return new Promise((resolve) => {
    const link = Object.assign(document.createElement("link"), { rel, href: `${base}/${file}`, onload: () => resolve(), onerror: () => resolve() });
    document.head.append(link);
  });
}

function showFailure(title: string, detail: string): void {
  const heading = document.createElement("h1");
  heading.textContent = title;
  const words = document.createElement("p");
  words.setAttribute("role", "alert");
  words.textContent = detail;
  const again = document.createElement("button");
  again.textContent = problemText.again;
  again.addEventListener("click", () => window.location.reload());
  const main = document.createElement("main");
  main.append(heading, words, again);
  document.getElementById("app")?.replaceChildren(main);
}

async function begin(): Promise<void> {
  let view: View;
  try {
    view = choose(await readRoles());
  } catch (error) {
    const problem = error instanceof ProblemError ? error.problem : undefined;
    showFailure(problem?.title ?? problemText.unknown, problem?.detail ?? "");
    return;
  }
  for (const part of view.parts) void addLink("modulepreload", part);
  await addLink("stylesheet", view.style);
  try {
    await import(`${base}/${view.script}`);
  } catch {
    showFailure(problemText.notLoaded, problemText.notLoadedDetail);
  }
}

void begin();
