/* SPDX-License-Identifier: Apache-2.0 */
// The profile inside the page, as vmm/report/flame_graph.c writes it:
//   about  facts of the recording
//   frames [[name, image, kind], ...], kind is an index of KINDS
//   functions [[frame, self, total], ...], of all samples
//   times  { start, cell, rows, cells, period, vcpus }, when the samples were taken, see times.js
//   tree   [frame, weight, samples, self, [child, ...]], from the root; without the narrowest if there
//          are very many

import { Times } from "./times.js";

export const KINDS = ["process", "kernel", "module", "user", "unknown", "host"];

// NODES: all nodes so far, depth first; a node's number is its place there.
function node(profile, source, nodes) {
	const [index, value, samples, self, children = []] = source;
	const [name, image, kind] = profile.frames[index];
	const made = { frame: index, name, image, kind: KINDS[kind], value, samples, self };

	nodes.push(made);
	made.children = children.map((child) => node(profile, child, nodes));
	return made;
}

function row(profile, source) {
	const [index, self, total] = source;
	const [name, image, kind] = profile.frames[index];

	return { frame: index, name, image, kind: KINDS[kind], self, total };
}

export function readProfile() {
	const profile = JSON.parse(document.getElementById("profile").textContent);
	const nodes = [];
	const root = node(profile, profile.tree, nodes);

	return { about: profile.about, root, functions: profile.functions.map((source) => row(profile, source)),
		times: profile.times && new Times(profile.times, nodes) };
}
