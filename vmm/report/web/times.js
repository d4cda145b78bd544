/* SPDX-License-Identifier: Apache-2.0 */
// When the samples were taken, as flame_graph_times.c writes it: cells of CELL ns from START (ns, text), ROWS
// of them in a column, CELLS in all; for each vCPU [name, [cells since the part before, frame, samples,
// weight, ...]] in order of time. The frame is twice the number of a node, plus 1 if the samples are in
// callees that the tree lacks. Without the weight if all samples have that of PERIOD.

function readParts(flat, period) {
	const step = period ? 3 : 4;
	const length = flat.length / step;
	const parts = { length, cell: new Float64Array(length), node: new Uint32Array(length), own: new Uint8Array(length),
		samples: new Float64Array(length), weight: new Float64Array(length) };

	for (let i = 0, at = 0, cell = 0; i < length; i++, at += step) {
		cell += flat[at];
		parts.cell[i] = cell;
		parts.node[i] = flat[at + 1] >>> 1;
		parts.own[i] = (flat[at + 1] & 1) ^ 1;
		parts.samples[i] = flat[at + 2];
		parts.weight[i] = period ? flat[at + 2] * period : flat[at + 3];
	}
	return parts;
}

export class Times {
	// NODES are those of the tree, depth first.
	constructor(source, nodes) {
		Object.assign(this, { start: BigInt(source.start), cell: source.cell, rows: source.rows, cells: source.cells });
		this.nodes = nodes;
		this.columns = Math.ceil(source.cells / source.rows);
		this.vcpus = source.vcpus.map(([name, flat]) => ({ name, parts: readParts(flat, source.period) }));
		this.parents = new Int32Array(nodes.length).fill(-1);
		this.outermost = new Uint8Array(nodes.length); // no caller is in the same function
		this.number(0, new Map());
	}

	// Returns the number behind those of node I and its callees.
	number(i, above) {
		const { frame, children } = this.nodes[i];
		const depth = above.get(frame) || 0;
		let next = i + 1;

		this.outermost[i] = depth ? 0 : 1;
		above.set(frame, depth + 1);
		for (let child = 0; child < children.length; child++) {
			this.parents[next] = i;
			next = this.number(next, above);
		}
		above.set(frame, depth);
		return next;
	}

	// Calls DO(vCPU's index, parts, i) for each part of the VCPUS in cells FIRST to LAST.
	each(first, last, vcpus, act) {
		this.vcpus.forEach(({ parts }, index) => {
			if (!vcpus.has(index))
				return;
			for (let i = 0; i < parts.length; i++) {
				if (parts.cell[i] >= first && parts.cell[i] <= last)
					act(index, parts, i);
			}
		});
	}

	// Weight of each cell.
	heat(vcpus) {
		const sums = new Float64Array(this.columns * this.rows);

		this.each(0, this.cells, vcpus, (_, parts, i) => { sums[parts.cell[i]] += parts.weight[i]; });
		return sums;
	}

	// For each vCPU a Map of kinds of innermost frames to the weight of each column.
	strips() {
		const strips = this.vcpus.map(() => new Map());

		this.each(0, this.cells, new Set(this.vcpus.keys()), (vcpu, parts, i) => {
			const { kind } = this.nodes[parts.node[i]];
			if (!strips[vcpu].has(kind))
				strips[vcpu].set(kind, new Float64Array(this.columns));
			strips[vcpu].get(kind)[Math.floor(parts.cell[i] / this.rows)] += parts.weight[i];
		});
		return strips;
	}

	// The tree, functions and sums of the VCPUS in cells FIRST to LAST; null if no sample is there.
	select(first, last, vcpus) {
		const self = new Float64Array(this.nodes.length);
		const value = new Float64Array(this.nodes.length);
		const samples = new Float64Array(this.nodes.length);

		this.each(first, last, vcpus, (_, parts, i) => {
			const node = parts.node[i];
			value[node] += parts.weight[i];
			samples[node] += parts.samples[i];
			self[node] += parts.own[i] * parts.weight[i];
		});
		// Callees have higher numbers than their callers.
		for (let i = this.nodes.length - 1; i > 0; i--) {
			value[this.parents[i]] += value[i];
			samples[this.parents[i]] += samples[i];
		}
		return samples[0] ? { weight: value[0], samples: samples[0], root: this.tree(self, value, samples),
			functions: this.functions(self, value) } : null;
	}

	tree(self, value, samples) {
		const made = new Array(this.nodes.length);

		for (let i = 0; i < this.nodes.length; i++) {
			if (!samples[i])
				continue;
			made[i] = { ...this.nodes[i], value: value[i], samples: samples[i], self: self[i], children: [] };
			if (i)
				made[this.parents[i]].children.push(made[i]);
		}
		return made[0];
	}

	functions(self, value) {
		const rows = new Map();

		this.nodes.forEach(({ frame, name, image, kind }, i) => {
			if (!value[i] || kind === "process")
				return;
			if (!rows.has(frame))
				rows.set(frame, { frame, name, image, kind, self: 0, total: 0 });
			rows.get(frame).self += self[i];
			rows.get(frame).total += this.outermost[i] * value[i];
		});
		return [...rows.values()];
	}
}
