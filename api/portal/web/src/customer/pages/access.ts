// The pages about who and what has access to a project, which are loaded together.
export { Instances } from "./Instances";
export { Members } from "./Members";
export { Notices } from "./Notices";
export { Tokens } from "./Tokens";
export { Webhook, Webhooks } from "./Webhooks";
