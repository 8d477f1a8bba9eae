import { useQuery } from "@tanstack/react-query";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { asProblem } from "../api/problem";

/** How often a page reads again what is under way, and what rests. */
export const soon = 2_000;
export const later = 15_000;

/** mostRows is the most that a list of a project is asked for at once, where it is a choice and no page. */
const mostRows = 200;

/** isRefused says whether a query was refused for lack of a role. */
export const isRefused = (query: { error: unknown }) => query.error !== null && asProblem(query.error).status === 403;

/** moneyIsHidden tells a member that his role does not see money. */
export const moneyIsHidden = "Your role in the project does not see money. Owners and members with the role billing do.";

/** useProjects reads the projects of who is signed in. */
export function useProjects() {
  return useQuery({ queryKey: ["projects"], queryFn: async () => (await call(() => client.GET("/api/v1/projects", { params: { query: { limit: mostRows } } }))).data ?? [] });
}

/** useInvitations reads the invitations that wait for who is signed in. */
export function useInvitations() {
  return useQuery({ queryKey: ["invitations"], refetchInterval: later, queryFn: async () => (await call(() => client.GET("/api/v1/invitations", {}))).data ?? [] });
}

/** useBalance reads the balance of who pays for a project. Balances of one billing account are the same. */
export function useBalance(id: string) {
  return useQuery({ queryKey: ["balance", id], refetchInterval: later, queryFn: () => call(() => client.GET("/api/v1/projects/{id}/balance", { params: { path: { id } } })) });
}

/** useKeys reads the SSH keys of a project. */
export function useKeys(id: string) {
  return useQuery({ queryKey: ["keys", id], queryFn: async () => (await call(() => client.GET("/api/v1/projects/{id}/ssh-keys", { params: { path: { id }, query: { limit: mostRows } } }))).data ?? [] });
}

/** useCatalogue reads what a project can order. */
export function useCatalogue(project: string) {
  return useQuery({ queryKey: ["catalogue", project], refetchInterval: later, queryFn: async () => (await call(() => client.GET("/api/v1/catalogue", { params: { query: { limit: mostRows, project_id: project } } }))).data ?? [] });
}

/** useUsage reads the newest segments of what a project, or one allocation of it, has used. */
export function useUsage(id: string, allocation?: string) {
  return useQuery({
    queryKey: ["usage", id, allocation ?? ""], refetchInterval: later,
    queryFn: async () => (await call(() => client.GET("/api/v1/projects/{id}/usage", { params: { path: { id }, query: { limit: mostRows, allocation_id: allocation } } }))).data ?? [],
  });
}

/** isMoving says whether an allocation changes by itself. */
export function isMoving(a: Schemas["Allocation"]): boolean {
  return a.status === "requested" || a.status === "provisioning" || a.status === "releasing";
}

/** useAllocations reads the newest allocations of a project. */
export function useAllocations(id: string) {
  return useQuery({
    queryKey: ["allocations", id], refetchInterval: (q) => (q.state.data?.some(isMoving) ? soon : later),
    queryFn: async () => (await call(() => client.GET("/api/v1/projects/{id}/allocations", { params: { path: { id }, query: { limit: mostRows } } }))).data ?? [],
  });
}

/** ratePerHour is what runs costs in an hour, in minor units. */
export function ratePerHour(segments: Schemas["UsageSegment"][]): number {
  return segments.filter((s) => !s.closed && s.start_time && !s.end_time).reduce((sum, s) => sum + (s.rate_minor_per_hour ?? 0), 0);
}
