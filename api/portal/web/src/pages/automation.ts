// The pages of machines, plans, runs and instances, which are loaded later, in one part of the bundle.
export { InstancePage, Instances } from "./Instances";
export { MachinePage, Machines } from "./Machines";
export { PlanPage, Plans } from "./Plans";
export { RunPage, Runs } from "./Runs";
