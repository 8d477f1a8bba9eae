// Builds the portal into ../dist: file names carry the hash of their content, and two builds of the
// same source give the same bytes. dist/SOURCE names the source that dist was built from; a Go test
// computes it again.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(fileURLToPath(import.meta.url));
const dist = join(web, "..", "dist");
process.chdir(web);

const digest = (data) => createHash("sha256").update(data).digest("hex");

/** emit writes one asset under a name that carries its hash, and returns that name. */
function emit(name, ending, data) {
  const file = `${name}-${digest(data).slice(0, 16)}.${ending}`;
  writeFileSync(join(dist, file), data);
  return file;
}

/** common are the options of each build. Each folder's tsconfig.json names the source of its JSX. */
const common = {
  bundle: true, minify: true, write: false, metafile: true, target: "es2022", charset: "utf8", legalComments: "none", logLevel: "warning",
  jsx: "automatic", outdir: dist, alias: { "react-remove-scroll": "./src/customer/scrollLock.ts" }, define: { "process.env.NODE_ENV": '"production"' },
};

/** bundle returns the only output of one entry point, and the inputs that it was made of. */
async function bundle(entry, options) {
  const result = await build({ ...common, entryPoints: [entry], ...options });
  return { data: result.outputFiles[0].contents, inputs: Object.keys(result.metafile.inputs) };
}

/**
 * bundleParts bundles one entry point with the parts that it loads later, and writes them. The name of
 * each part holds its hash, so a part is written once all that it imports has its name. It returns the
 * file of the entry, the parts that the entry needs at once, and the inputs.
 */
async function bundleParts(entry, name, options) {
  const result = await build({ ...common, entryPoints: [entry], splitting: true, format: "esm", chunkNames: "part-[hash]", ...options });
  const outputs = Object.entries(result.metafile.outputs).map(([path, about]) => ({ path, about, code: result.outputFiles.find((f) => f.path === join(web, path)).text }));
  outputs.sort((a, b) => (a.path < b.path ? -1 : 1));
  const names = new Map();
  while (names.size < outputs.length) {
    const ready = outputs.filter((o) => !names.has(o.path) && o.about.imports.every((i) => names.has(i.path)));
    if (ready.length === 0) throw new Error("parts import each other in a circle; move what they share into a module of its own");
    for (const { path, about, code } of ready) {
      let renamed = code;
      for (const i of about.imports) renamed = renamed.replaceAll(`./${basename(i.path)}`, `./${names.get(i.path)}`);
      names.set(path, emit(about.entryPoint === entry ? name : "part", "js", renamed));
    }
  }
  const main = outputs.find((o) => o.about.entryPoint === entry);
  const atOnce = new Set();
  const follow = (of) => {
    for (const i of of.about.imports) {
      if (i.kind !== "import-statement" || atOnce.has(names.get(i.path))) continue;
      atOnce.add(names.get(i.path));
      follow(outputs.find((o) => o.path === i.path));
    }
  };
  follow(main);
  return { script: names.get(main.path), parts: [...atOnce].sort(), inputs: Object.keys(result.metafile.inputs) };
}

/** licenses returns the licence texts of the packages whose code is in the bundle. */
function licenses(inputs) {
  const names = new Set();
  for (const path of inputs) {
    const match = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (match) names.add(match[1]);
  }
  return [...names].sort().map((name) => {
    const folder = join("node_modules", name);
    const meta = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no licence file; ship another package`);
    return `${name} ${meta.version} (${meta.license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  }).join("\n----\n\n");
}

/** sourceDigest covers each source file's path, length and content, in the byte order of the paths. */
function sourceDigest() {
  const files = ["package-lock.json", "tsconfig.json", "build.mjs"];
  for (const e of readdirSync("src", { recursive: true, withFileTypes: true })) {
    if (e.isFile()) files.push(join(e.parentPath ?? e.path, e.name));
  }
  const hash = createHash("sha256");
  for (const file of files.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))) {
    const data = readFileSync(file);
    hash.update(`${file}\0${data.length}\0`).update(data);
  }
  return hash.digest("hex");
}

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist, { recursive: true });
const worker = await bundle("src/live.worker.ts", { format: "iife" });
const workerName = emit("live", "js", worker.data);
const inputs = [...worker.inputs];

/** application builds the script and the styles of one application, and returns the names of its files. */
async function application(name, entry, styles, define) {
  const { script, parts, inputs: scripts } = await bundleParts(entry, name, { define: { ...common.define, ...define } });
  const style = await bundle(styles, {});
  inputs.push(...scripts, ...style.inputs);
  return { script, parts, style: emit(name, "css", style.data) };
}

const views = {
  operators: await application("app", "src/main.tsx", "src/style.css", { WORKER_FILE: JSON.stringify(workerName) }),
  customers: await application("my", "src/customer/main.tsx", "src/customer/style.css", {}),
};
const start = await bundle("src/start.ts", { format: "esm", define: { ...common.define, VIEWS: JSON.stringify(views) } });
const startName = emit("start", "js", start.data);
const iconName = emit("icon", "svg", readFileSync("src/icon.svg"));
writeFileSync(join(dist, "index.html"), `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Slipway</title>
<link rel="icon" href="/portal/${iconName}" type="image/svg+xml">
<script type="module" src="/portal/${startName}"></script>
</head>
<body>
<div id="app"><noscript>The portal requires JavaScript. The command slipway does the same without it.</noscript></div>
</body>
</html>
`);
writeFileSync(join(dist, "LICENSES"), licenses([...inputs, ...start.inputs]));
writeFileSync(join(dist, "SOURCE"), sourceDigest() + "\n");
