/* SPDX-License-Identifier: Apache-2.0 */
// The profile inside the page, as vmm/report/flame_graph.c writes it:
//   about  facts of the recording
//   frames [[name, image, kind], ...], kind is an index of KINDS
//   functions [[frame, self, total], ...], of all samples
//   tree   [frame, weight, samples, self, [child, ...]], from the root; without frames too narrow to see

export const KINDS = ["process", "kernel", "module", "user", "unknown", "host"];

function node(profile, source) {
	const [index, value, samples, self, children = []] = source;
	const [name, image, kind] = profile.frames[index];

	return { frame: index, name, image, kind: KINDS[kind], value, samples, self,
		children: children.map((child) => node(profile, child)) };
}

function row(profile, source) {
	const [index, self, total] = source;
	const [name, image, kind] = profile.frames[index];

	return { frame: index, name, image, kind: KINDS[kind], self, total };
}

export function readProfile() {
	const profile = JSON.parse(document.getElementById("profile").textContent);

	return { about: profile.about, root: node(profile, profile.tree),
		functions: profile.functions.map((source) => row(profile, source)) };
}
