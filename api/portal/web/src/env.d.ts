/** WORKER_FILE is the name of the bundled live.worker.ts; build.mjs sets it. */
declare const WORKER_FILE: string;
