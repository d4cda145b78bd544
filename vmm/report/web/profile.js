/* SPDX-License-Identifier: Apache-2.0 */
// The profile inside the page, as vmm/report/flame_graph.c writes it: a list of events, each with
//   about  facts of the recording
//   frames [[name, image, kind], ...], kind is an index of KINDS
//   functions [[frame, self, total, self before], ...], of all samples
//   times  { start, cell, rows, cells, period, vcpus }, when the samples were taken, see times.js
//   tree   [frame, weight, samples, self, [child, ...]], from the root; without the narrowest if there
//          are very many
// A comparison has about.before, the weight of the baseline, and nodes have two more numbers in front of
// their children: the weight and self in the baseline.

import { Times } from "./times.js";

export const KINDS = ["process", "kernel", "module", "user", "unknown", "host"];

// The mean of both shares: what is gone has a width, too.
function meanShare(about, before, after) {
	return (before / (about.before || 1) + after / (about.after || 1)) / 2;
}

// NODES: all nodes so far, depth first; a node's number is its place there.
function node(profile, source, nodes) {
	const [index, weight, samples, self, ...more] = source;
	const children = Array.isArray(more.at(-1)) ? more.pop() : [];
	const [before = 0, selfBefore = 0] = more;
	const [name, image, kind] = profile.frames[index];
	const made = { frame: index, name, image, kind: KINDS[kind], samples, self, before, selfBefore, after: weight,
		value: profile.about.differs ? meanShare(profile.about, before, weight) : weight };

	nodes.push(made);
	made.children = children.map((child) => node(profile, child, nodes));
	return made;
}

function row(source, profile) {
	const [index, self, total, selfBefore] = source;
	const [name, image, kind] = profile.frames[index];
	const { about } = profile;

	return { frame: index, name, image, kind: KINDS[kind], self, total, selfBefore,
		change: about.differs ? share(self, about.after) - share(selfBefore, about.before) : 0 };
}

function share(part, whole) {
	return whole ? part / whole : 0;
}

// How much more of the time is in DATA than in the baseline: a part of the whole.
export function changeOf(about, data) {
	return share(data.after, about.after) - share(data.before, about.before);
}

// From -1, which is gone, to 1, which is new.
export function relativeChange(about, data) {
	return share(changeOf(about, data), share(data.after, about.after) + share(data.before, about.before));
}

function readEvent(profile) {
	const { about } = profile;
	const nodes = [];

	about.differs = about.before !== undefined;
	about.after = about.weight;
	if (about.differs)
		about.weight = 1; // the root's width
	const root = node(profile, profile.tree, nodes);

	return { about, root, functions: profile.functions.map((source) => row(source, profile)),
		times: profile.times && new Times(profile.times, nodes) };
}

// The facts of each event, and read(index), which returns { about, root, functions, times }.
export function readProfile() {
	const events = JSON.parse(document.getElementById("profile").textContent);
	const done = [];

	return { events: events.map(({ about }) => about),
		read: (index) => (done[index] = done[index] || readEvent(events[index])) };
}
