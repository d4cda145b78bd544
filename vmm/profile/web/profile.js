// SPDX-License-Identifier: Apache-2.0
// The profile inside the page, as vmm/profile/flame_graph.c writes it:
//   about  what was recorded
//   frames [[name, image, kind], ...], kind an index of KINDS
//   tree   [frame, weight, samples, [child, ...]], the root first

export const KINDS = ["process", "kernel", "module", "user", "unknown"];

function node(profile, source) {
	const [index, weight, samples, children = []] = source;
	const [name, image, kind] = profile.frames[index];
	const inner = children.map((child) => node(profile, child));
	const self = inner.reduce((rest, child) => rest - child.value, weight);

	return { name, image, kind: KINDS[kind], frame: index, value: weight, samples, self,
		children: inner };
}

export function readProfile() {
	const profile = JSON.parse(document.getElementById("profile").textContent);
	return { about: profile.about, root: node(profile, profile.tree) };
}

// One row for each function: own weight, and total counted once where it recurses.
export function functions(root) {
	const rows = new Map();
	const active = new Set();

	function visit(data) {
		let row = rows.get(data.frame);
		if (!row) {
			row = { data, self: 0, total: 0 };
			rows.set(data.frame, row);
		}
		const outermost = !active.has(data.frame);
		row.self += data.self;
		if (outermost) {
			row.total += data.value;
			active.add(data.frame);
		}
		data.children.forEach(visit);
		if (outermost)
			active.delete(data.frame);
	}
	visit(root);
	return [...rows.values()].filter((row) => row.data.kind !== "process");
}
