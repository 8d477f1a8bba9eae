/** WORKER_FILE is the name of the bundled live.worker.ts; build.mjs sets it. */
declare const WORKER_FILE: string;

/** View is what an application consists of: its script, the parts that it needs at once, and its styles. */
interface View {
  script: string;
  parts: string[];
  style: string;
}

/** VIEWS are the applications of the portal; build.mjs sets them. */
declare const VIEWS: { operators: View; customers: View };
