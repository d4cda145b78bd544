/* SPDX-License-Identifier: Apache-2.0 */
// Trees made from the recorded one: without some of its frames, or around one function.

function empty(data) {
	const { frame, name, image, kind } = data;
	return { frame, name, image, kind, value: 0, samples: 0, self: 0, before: 0, selfBefore: 0, after: 0,
		children: [], of: new Map() };
}

function count(into, data) {
	into.value += data.value;
	into.samples += data.samples;
	into.before += data.before;
	into.after += data.after;
}

// The child of NODE for the function of DATA, with DATA's time.
function child(node, data) {
	if (!node.of.has(data.frame)) {
		node.of.set(data.frame, empty(data));
		node.children.push(node.of.get(data.frame));
	}
	return node.of.get(data.frame);
}

// Adds SOURCE's callees to those of INTO. A callee that is skipped leaves its time to its caller.
function addCallees(into, source, skips) {
	into.self += source.self;
	into.selfBefore += source.selfBefore;
	for (const data of source.children) {
		const skipped = skips(data, into);
		const node = skipped ? into : child(into, data);
		if (!skipped)
			count(node, data);
		addCallees(node, data, skips);
	}
}

// HIDDEN: kinds of frames to leave out. RECURSION: a function that calls itself becomes one frame.
export function arrange(root, hidden, recursion) {
	const top = empty(root);
	count(top, root);
	addCallees(top, root, (data, caller) => hidden.has(data.kind) || (recursion && data.frame === caller.frame));
	return top;
}

// Calls FOUND with the path from the root to each outermost frame of a function.
function outermost(data, frame, found, path = []) {
	path.push(data);
	if (data.frame === frame)
		found(path);
	else
		data.children.forEach((callee) => outermost(callee, frame, found, path));
	path.pop();
}

// { callers, callees }: trees that begin at the function FRAME; null if ROOT does not have it.
export function sandwich(root, frame) {
	let trees = null;
	outermost(root, frame, (path) => {
		const data = path.at(-1);
		trees = trees || { callers: empty(data), callees: empty(data) };
		count(trees.callees, data);
		addCallees(trees.callees, data, () => false);
		let node = trees.callers;
		count(node, data);
		for (const caller of path.slice(1, -1).reverse()) {
			node = child(node, caller);
			count(node, data);
		}
	});
	return trees;
}
