// Check the accessibility of the built documentation site with axe-core, at two widths and in both colour schemes.
//
//     scripts/docs
//     npm install --prefix FOLDER axe-core playwright-core     # a folder outside the repository
//     node scripts/site_check.mjs --modules FOLDER [--browser PATH] [PAGE…]
//
// Checks every page of docs/_build/html (or --site), or only the named ones. One source listing (_modules) stands for
// all, because they have the same structure. Exits with 1 if a finding is serious or critical.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const VIEWS = [
  { width: 390, height: 844, colorScheme: "light" },
  { width: 1280, height: 900, colorScheme: "light" },
  { width: 1280, height: 900, colorScheme: "dark" },
];
const IMPACTS = ["critical", "serious", "moderate", "minor"];
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Return the pages of the site as paths relative to its folder, sorted, with one of the source listings. */
function findPages(site) {
  const found = readdirSync(site, { recursive: true }).filter((name) => name.endsWith(".html")).sort();
  const isListing = (name) => name.startsWith("_modules");
  return [...found.filter((name) => !isListing(name)), ...found.filter(isListing).slice(0, 1)];
}

/** Return the findings of axe on a page in all views: rule, impact, help text, page, view and the first elements. */
async function check(browser, axe, site, name) {
  const page = await browser.newPage();
  // A busy machine may need minutes for a page.
  page.setDefaultTimeout(0);
  // The check needs no network, and a request that is never answered would delay the event `load`.
  await page.route(/^https?:/, (request) => request.abort());
  await page.goto(pathToFileURL(join(site, name)).href, { waitUntil: "load" });
  await page.evaluate(axe);
  const findings = [];
  for (const view of VIEWS) {
    await page.setViewportSize({ width: view.width, height: view.height });
    await page.emulateMedia({ colorScheme: view.colorScheme });
    const run = () => globalThis.axe.run(document, { resultTypes: ["violations"] });
    const { violations } = await page.evaluate(run);
    findings.push(...violations.map((one) => summarise(one, name, view)));
  }
  await page.close();
  return findings;
}

function summarise(violation, page, view) {
  return {
    rule: violation.id,
    impact: violation.impact,
    help: violation.help,
    page,
    view: `${view.width} ${view.colorScheme}`,
    elements: violation.nodes.length,
    first: violation.nodes.slice(0, 2).map((node) => node.html.slice(0, 160)),
  };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    browser: { type: "string", default: "/usr/bin/chromium" },
    modules: { type: "string" },
    site: { type: "string", default: join(ROOT, "docs", "_build", "html") },
  },
});
if (!values.modules) {
  console.error("scripts/site_check.mjs: expected --modules FOLDER, where npm installed axe-core and playwright-core");
  process.exit(2);
}
const require = createRequire(join(resolve(values.modules), "package.json"));
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");
const { chromium } = require("playwright-core");
const browser = await chromium.launch({ executablePath: values.browser, args: FLAGS, timeout: 0 });
const pages = positionals.length ? positionals : findPages(values.site);
const findings = [];
for (const name of pages) {
  findings.push(...(await check(browser, axe, values.site, name)));
  console.error(`${name}: ${findings.filter((one) => one.page === name).length} findings`);
}
const countOf = (impact) => findings.filter((one) => one.impact === impact).length;
const count = Object.fromEntries(IMPACTS.map((impact) => [impact, countOf(impact)]));
await browser.close();
for (const one of findings) {
  console.log(`${one.impact}: ${one.page} (${one.view}): ${one.rule}, ${one.elements} elements: ${one.first[0]}`);
}
const summary = IMPACTS.map((impact) => `${count[impact]} ${impact}`).join(", ");
console.log(`${pages.length} pages at ${VIEWS.length} views: ${summary}`);
process.exit(count.critical + count.serious ? 1 : 0);
