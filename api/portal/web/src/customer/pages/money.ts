// The pages about money, which are loaded together.
export { Balance } from "./Balance";
export { Ledger } from "./Ledger";
export { Statement } from "./Statement";
export { Usage } from "./Usage";
