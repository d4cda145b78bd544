/* SPDX-License-Identifier: Apache-2.0 */
// The samples over time: a heat map (a column is a second, its rows are parts of it from the bottom to
// the top) and below it a strip for each vCPU. A part of either selects that time.

import { count, duration, exactSeconds, percent, seconds } from "./format.js";
import { element } from "./panels.js";
import { KINDS } from "./profile.js";
import { heatColor, kindColor } from "./theme.js";

const MARGIN = 16; // CSS pixels below the strips, for the axis

export class HeatMap {
	// LISTENER has selected(part, range, vcpus): what Times.select() returns (undefined for all), cells (null
	// for all), and a Set of vCPUs.
	constructor(about, times, listener) {
		const byId = (id) => document.getElementById(id);

		Object.assign(this, { listener, map: byId("heat-map"), lanes: byId("strips"), names: byId("vcpus"),
			moment: byId("moment"), range: null, cursor: null, vcpus: new Set(times.vcpus.keys()) });
		this.use(about, times);
		byId("column-top").textContent = duration(times.cell * times.rows);
		this.all = byId("all-time");
		this.all.addEventListener("click", () => this.choose(null));
		this.names.replaceChildren(...times.vcpus.map(({ name }, index) => element("button", { type: "button",
			ariaPressed: "true", title: "Show or leave out this vCPU", onclick: () => this.toggle(index) }, name)));
		this.follow(this.map, (column, row) => {
			const cell = column * times.rows + row;
			return [cell, cell];
		});
		this.follow(this.lanes, (column) => [column * times.rows, (column + 1) * times.rows - 1]);
		this.fit();
		this.map.addEventListener("keydown", (event) => this.key(event));
		new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.map);
	}

	use(about, times) {
		Object.assign(this, { about, times, strips: times.strips(), heat: times.heat(this.vcpus) });
	}

	// Another event, which has the same times and vCPUs.
	replace(about, times) {
		this.use(about, times);
		// A part without samples cannot be selected.
		const empty = !times.select(...(this.range || [0, times.cells]), this.vcpus);
		this.choose(empty ? null : this.range, empty ? new Set(times.vcpus.keys()) : this.vcpus);
	}

	// A strip is as high as its button.
	fit() {
		this.lane = this.names.firstChild.offsetHeight;
		this.lanes.style.height = this.lane * this.strips.length + MARGIN + "px";
	}

	// The selection of an address: "FIRST,LAST" cells and "NUMBER,..." vCPUs, or "" for all.
	read(time, vcpus) {
		const [first, last] = time.split(",").map(Number);
		const shown = vcpus.split(",").map(Number).filter((vcpu) => vcpus && this.vcpus.has(vcpu));

		return [first >= 0 && last >= first ? [first, Math.min(last, this.times.columns * this.times.rows - 1)] : null,
			shown.length ? new Set(shown) : this.vcpus];
	}

	// What is pointed at in CANVAS becomes cells by CELLS(column, row from the bottom).
	follow(canvas, cells) {
		const pointed = (event) => {
			const box = canvas.getBoundingClientRect();
			const place = (part, whole, most) => Math.min(Math.max(Math.floor((part / whole) * most), 0), most - 1);
			return cells(place(event.clientX - box.left, box.width, this.times.columns),
				place(box.bottom - event.clientY, box.height, this.times.rows));
		};
		let from = null;

		canvas.addEventListener("pointerdown", (event) => {
			if (event.button)
				return;
			from = event.shiftKey && this.range ? this.range : pointed(event);
			canvas.setPointerCapture(event.pointerId);
			this.show(hull(from, pointed(event)));
		});
		canvas.addEventListener("pointermove", (event) => this.show(from ? hull(from, pointed(event)) : pointed(event)));
		canvas.addEventListener("pointerup", (event) => {
			if (from)
				this.choose(hull(from, pointed(event)));
			from = null;
		});
		for (const end of ["pointercancel", "pointerleave"])
			canvas.addEventListener(end, () => {
				from = null;
				this.show(null);
			});
	}

	key(event) {
		const steps = { ArrowLeft: -this.times.rows, ArrowRight: this.times.rows, ArrowUp: 1, ArrowDown: -1 };
		const last = this.times.columns * this.times.rows - 1;
		const cursor = this.cursor || this.range || [0, 0];

		if (event.ctrlKey || event.metaKey || event.altKey)
			return;
		if (event.key in steps) {
			const to = Math.min(Math.max(this.end(cursor) + steps[event.key], 0), last);
			this.from = event.shiftKey ? this.from ?? this.end(cursor) : null;
			this.head = to;
			this.show(this.from === null ? [to, to] : hull([this.from, this.from], [to, to]));
		} else if (event.key === "Enter" || event.key === " ") {
			this.choose(cursor);
		} else if (event.key === "Escape") {
			this.choose(null);
		} else {
			return;
		}
		event.preventDefault();
		event.stopPropagation();
	}

	// The end of the cursor that the arrow keys move.
	end(cursor) {
		return this.head !== undefined && cursor[0] <= this.head && this.head <= cursor[1] ? this.head : cursor[0];
	}

	toggle(vcpu) {
		const vcpus = new Set(this.vcpus);

		if (!vcpus.delete(vcpu))
			vcpus.add(vcpu);
		this.choose(this.range, vcpus);
	}

	// Selects the cells of RANGE (null: all). A selection without samples changes nothing.
	choose(range, vcpus = this.vcpus) {
		const [first, last] = range || [0, this.times.cells];
		const part = range || vcpus.size < this.times.vcpus.length ? this.times.select(first, last, vcpus) : undefined;

		if (part === null) {
			this.moment.textContent = "No samples there: the selection stays as it was.";
			return;
		}
		if (vcpus !== this.vcpus)
			this.heat = this.times.heat(vcpus);
		Object.assign(this, { range, vcpus, cursor: null, part });
		[...this.names.children].forEach((button, index) => { button.ariaPressed = String(vcpus.has(index)); });
		this.all.hidden = !range;
		this.draw();
		this.describe();
		this.listener.selected(part, range, vcpus);
	}

	// Points at CELLS, or with null at nothing.
	show(cells) {
		this.cursor = cells;
		this.draw();
		this.describe();
	}

	// The time and use of the cells that are pointed at or selected.
	describe() {
		const cells = this.cursor || this.range;
		const { start, cell } = this.times;

		if (!cells) {
			this.moment.textContent = "";
			return;
		}
		const [from, to] = [cells[0] * cell, (cells[1] + 1) * cell];
		const weight = this.heat.slice(cells[0], cells[1] + 1).reduce((sum, each) => sum + each, 0);
		const share = this.about.unit === "ns" ? percent(Math.min(weight, (to - from) * this.vcpus.size), (to - from) * this.vcpus.size) +
			` of ${this.vcpus.size === 1 ? "one vCPU" : count(this.vcpus.size) + " vCPUs"}` : `${count(weight)}`;
		this.moment.textContent = `${seconds(from)} to ${seconds(to)} s \u00b7 ${share}` +
			(this.cursor ? "" : ` \u00b7 --time ${exactSeconds(start + BigInt(from))},${exactSeconds(start + BigInt(to) - 1n)}`);
	}

	// Cells that are selected are drawn fully, others faintly.
	draw() {
		this.drawHeat();
		this.drawStrips();
	}

	drawHeat() {
		const { columns, rows } = this.times;
		const [first, last] = this.cursor || this.range || [0, Infinity];
		const most = this.heat.reduce((max, each) => Math.max(max, each), 1);
		const small = new OffscreenCanvas(columns, rows);
		const image = new ImageData(columns, rows);

		this.heat.forEach((weight, cell) => {
			const at = 4 * ((rows - 1 - (cell % rows)) * columns + Math.floor(cell / rows));
			image.data.set(heatColor(weight / most), at);
			image.data[at + 3] = cell >= first && cell <= last ? 255 : 70;
		});
		small.getContext("2d").putImageData(image, 0, 0);
		const pen = prepare(this.map);
		pen.imageSmoothingEnabled = false;
		pen.drawImage(small, 0, 0, this.map.clientWidth, this.map.clientHeight);
	}

	drawStrips() {
		const { columns, rows, cell } = this.times;
		const [first, last] = this.cursor || this.range || [0, Infinity];
		// All of a vCPU's time, or as many events as any column of any vCPU has.
		const full = this.about.unit === "ns" ? cell * rows : mostOf(this.strips, columns);

		this.fit();
		const { lane } = this;
		const pen = prepare(this.lanes);
		const width = this.lanes.clientWidth / columns;
		this.strips.forEach((kinds, vcpu) => {
			for (let column = 0; column < columns; column++) {
				let bottom = (vcpu + 1) * lane - 1;
				const inside = (column + 1) * rows > first && column * rows <= last && this.vcpus.has(vcpu);
				pen.globalAlpha = inside ? 1 : 0.3;
				for (const kind of KINDS) {
					const height = Math.min(1, (kinds.get(kind)?.[column] || 0) / full) * (lane - 2);
					pen.fillStyle = kindColor(kind);
					pen.fillRect(column * width, bottom - height, Math.max(width, 1), height);
					bottom -= height;
				}
			}
		});
		pen.globalAlpha = 1;
		this.drawAxis(pen, lane * this.strips.length);
	}

	drawAxis(pen, top) {
		const { cells, cell, rows, columns } = this.times;
		const width = this.lanes.clientWidth;
		const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => (each / columns) * width > 70) || columns;

		pen.fillStyle = getComputedStyle(this.lanes).color;
		pen.font = "11px system-ui, sans-serif";
		for (let column = 0; column * rows < cells; column += step)
			pen.fillText(seconds(column * rows * cell, 1) + " s", (column / columns) * width + 2, top + MARGIN - 4);
	}
}

function hull(a, b) {
	return [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
}

function mostOf(strips, columns) {
	let most = 1;

	for (const kinds of strips) {
		for (let column = 0; column < columns; column++)
			most = Math.max(most, [...kinds.values()].reduce((sum, weights) => sum + weights[column], 0));
	}
	return most;
}

// Empties CANVAS and fits it to its place; returns what draws in CSS pixels.
function prepare(canvas) {
	const pen = canvas.getContext("2d");
	const scale = window.devicePixelRatio || 1;

	canvas.width = Math.round(canvas.clientWidth * scale);
	canvas.height = Math.round(canvas.clientHeight * scale);
	pen.scale(scale, scale);
	return pen;
}
