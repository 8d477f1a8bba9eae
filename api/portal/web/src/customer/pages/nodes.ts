// The pages about projects and nodes, which are loaded together.
export { AllocationPage as Allocation } from "./Allocation";
export { Allocations } from "./Allocations";
export { Catalogue } from "./Catalogue";
export { Home } from "./Home";
export { Keys } from "./Keys";
export { Order } from "./Order";
export { Overview } from "./Overview";
