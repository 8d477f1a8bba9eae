// The pages that are loaded later, in one part of the bundle: the first view of the portal has none of them.
export { AccountPage, Accounts } from "./Accounts";
export { AllocationPage, Allocations } from "./Allocations";
export { Audit } from "./Audit";
export { BmcPage, Bmcs } from "./Bmcs";
export { Catalogue } from "./Catalogue";
export { Documentation } from "./Documentation";
export { InstallWorkflowPage, InstallWorkflows } from "./InstallWorkflows";
export { PaymentPage, Payments } from "./Payments";
export { NewPrice, Prices } from "./Prices";
export { ProjectAllocationPage } from "./ProjectAllocations";
export { ProjectPartPage } from "./ProjectPart";
export { ProjectPage, Projects } from "./Projects";
export { ProfilePage, SitePage, Sites } from "./Sites";
export { SkuPage, Skus } from "./Skus";
export { EditInstallWorkflow, EditProfile, EditSite, EditSku, NewInstallWorkflow, NewProfile, NewSite, NewSku } from "./SpecForms";
export { Statistics } from "./Statistics";
export { Tokens } from "./Tokens";
export { WebhookPage } from "./Webhook";
