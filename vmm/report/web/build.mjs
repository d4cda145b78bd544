// SPDX-License-Identifier: Apache-2.0
// Puts the page, its style and its script together into the one file that is built into kvmscope:
//   node build.mjs OUTPUT
// Run in a folder that holds these files and node_modules. {{DATA}} is left for flame_graph.c.
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

// What the page is built from may be given on only with its licences.
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

// Inside a script element only this sequence could end it.
const script = bundle.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
const parts = {
	SCRIPT: script,
	// The page may run this script and no other, whatever names a guest has put into the data.
	SCRIPT_HASH: "sha256-" + createHash("sha256").update(script).digest("base64"),
	LICENCES: licences(),
	STYLE: style.outputFiles[0].text.trim(),
};
const page = readFileSync("page.html", "utf8").replace(/\{\{(\w+)\}\}/g, (whole, name) => parts[name] ?? whole);

if (page.split("{{DATA}}").length !== 2)
	throw new Error("page.html must hold {{DATA}} exactly once");
writeFileSync(process.argv[2], page);
