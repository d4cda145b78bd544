/* SPDX-License-Identifier: Apache-2.0 */
// Combines the page, its style and its script into the one file that is built into kvmscope:
//   node build.mjs OUTPUT
// Runs in a folder with these files and node_modules. {{DATA}} is filled in by flame_graph.c.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

import { build } from "esbuild";

const bundle = await build({
	entryPoints: ["main.js"],
	bundle: true,
	minify: true,
	format: "iife",
	target: "es2020",
	charset: "ascii",
	legalComments: "inline",
	loader: { ".css": "empty" },
	write: false,
});
const style = await build({ entryPoints: ["style.css"], bundle: true, minify: true, write: false });

// The licences of its parts require their texts in the page.
function licences() {
	const seen = new Map();
	for (const name of readdirSync("node_modules").filter((entry) => /^(d3-|internmap)/.test(entry)).sort()) {
		const path = `node_modules/${name}/LICENSE`;
		if (!existsSync(path))
			throw new Error(`${path} is missing`);
		const text = readFileSync(path, "utf8").trim();
		seen.set(text, [...(seen.get(text) ?? []), name]);
	}
	return [...seen].map(([text, names]) => `${names.join(", ")}:\n\n${text}\n`).join("\n").replaceAll("--", "- -");
}

// Only this sequence could end a script element.
const script = bundle.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
const parts = {
	SCRIPT: script,
	// The page runs this script only, whatever names from the guest are in the data.
	SCRIPT_HASH: "sha256-" + createHash("sha256").update(script).digest("base64"),
	LICENCES: licences(),
	STYLE: style.outputFiles[0].text.trim(),
};
const page = readFileSync("page.html", "utf8").replace(/\{\{(\w+)\}\}/g, (whole, name) => parts[name] ?? whole);

if (page.split("{{DATA}}").length !== 2)
	throw new Error("page.html must hold {{DATA}} exactly once");
writeFileSync(process.argv[2], page);
