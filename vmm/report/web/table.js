/* SPDX-License-Identifier: Apache-2.0 */
// The table of functions: sorted by any column, some rows at first and more on request.

import { count, percent, points } from "./format.js";
import { element } from "./panels.js";
import { kindColor } from "./theme.js";

const ROWS_AT_FIRST = 40;
const MORE_ROWS = 400;

const orders = {
	name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
	self: (a, b) => b.self - a.self,
	total: (a, b) => b.total - a.total,
	change: (a, b) => Math.abs(b.change) - Math.abs(a.change),
};

export class FunctionTable {
	// PRESSED is called with a row that is clicked.
	constructor(about, functions, pressed) {
		this.pressed = pressed;
		this.more = document.getElementById("more");
		this.more.addEventListener("click", () => {
			this.limit += MORE_ROWS;
			this.draw();
		});
		if (about.differs) {
			const last = document.querySelector("#functions-table th[data-key=total]");
			last.dataset.key = "change";
			last.firstChild.textContent = "Change";
		}
		this.headers = [...document.querySelectorAll("#functions-table th")];
		for (const header of this.headers)
			header.querySelector("button").addEventListener("click", () => this.sort(header.dataset.key));
		this.key = about.differs ? "change" : "self";
		this.reversed = false;
		this.show(about, functions);
	}

	// Functions of another part of the recording, in the same order.
	show(about, functions) {
		this.about = about;
		this.rows = functions;
		this.limit = ROWS_AT_FIRST;
		this.most = functions.reduce((most, row) => Math.max(most, row.self), 1);
		this.order();
	}

	// A second time reverses the order.
	sort(key) {
		this.reversed = key === this.key && !this.reversed;
		this.key = key;
		this.order();
	}

	order() {
		const { key } = this;
		this.rows.sort((a, b) => (this.reversed ? -1 : 1) * orders[key](a, b) || orders.name(a, b));
		for (const header of this.headers) {
			const falling = (key === "name") === this.reversed;
			header.ariaSort = header.dataset.key !== key ? "none" : falling ? "descending" : "ascending";
		}
		this.draw();
	}

	draw() {
		const left = this.rows.length - this.limit;
		document.getElementById("functions").replaceChildren(
			...this.rows.slice(0, this.limit).map((row) => this.row(row)));
		this.more.hidden = left <= 0;
		this.more.textContent = `Show ${count(Math.min(left, MORE_ROWS))} more of ${count(this.rows.length)} functions`;
	}

	row(data) {
		const swatch = element("i", {});
		const bar = element("b", {});
		swatch.style.background = kindColor(data.kind);
		bar.style.width = (100 * data.self) / this.most + "px";
		return element("tr", {},
			element("td", {}, swatch,
				element("button", { type: "button", onclick: () => this.pressed(data) }, data.name),
				element("small", {}, data.image)),
			element("td", { className: "number" }, bar, percent(data.self, this.about.after)),
			element("td", { className: "number" }, this.about.differs ? points(data.change) : percent(data.total, this.about.after)));
	}
}
