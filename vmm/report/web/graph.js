/* SPDX-License-Identifier: Apache-2.0 */
// The flame graph itself, based on d3-flame-graph: drawing, zoom, search, keyboard.

import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import "d3-transition";

import { matcher } from "./search.js";
import { matchColor } from "./theme.js";

// Width in CSS pixels below which frames are not drawn: they could not be seen or touched.
const NARROWEST = 2;

function depth(data) {
	return 1 + data.children.reduce((most, child) => Math.max(most, depth(child)), 0);
}

export class Graph {
	// VIEW is "flame", "icicle", or "" for what suits the window. LISTENER has zoomed(node),
	// current(node), label(node) and color(data, dimmed).
	constructor(element, root, view, listener) {
		this.element = element;
		this.listener = listener;
		this.matches = () => false;
		this.searching = false;
		this.cell = window.matchMedia("(pointer: coarse)").matches || window.innerWidth <= 640 ? 26 : 20;
		element.style.setProperty("--cell", this.cell + "px");
		this.chart = flamegraph()
			.width(element.clientWidth)
			.cellHeight(this.cell)
			.minFrameSize(NARROWEST)
			.transitionDuration(window.matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 180)
			.resetHeightOnZoom(true)
			.sort((a, b) => (a.data.name < b.data.name ? -1 : a.data.name > b.data.name ? 1 : 0))
			.setLabelHandler((node) => listener.label(node))
			.setDetailsHandler(() => {})
			.setSearchHandler((found, sum) => { this.found = { count: found.length, sum }; })
			.setSearchMatch((node) => this.matches(node.data))
			.setColorMapper((node) => this.color(node))
			.onHover((node) => listener.hovered(node))
			.onClick((node) => this.zoomed(node));
		this.data = root;
		// An icicle is easier to read if the whole graph does not fit.
		const bottom = element.getBoundingClientRect().top + depth(root) * this.cell;
		this.setView(view ? view === "icicle" : bottom > window.innerHeight);
	}

	setView(inverted) {
		this.inverted = inverted;
		this.element.dataset.view = inverted ? "icicle" : "flame";
		this.chart.inverted(inverted);
	}

	color(node) {
		if (node.highlight)
			return matchColor();
		return this.listener.color(node.data, this.searching);
	}

	draw() {
		select(this.element).datum(this.data).call(this.chart);
		this.adopt();
		this.settle();
	}

	adopt() {
		this.root = select(this.element).datum();
		this.nodes = this.root.descendants();
		this.zoom = this.root;
		this.current = this.root;
	}

	// Draws another tree.
	show(root) {
		this.chart.update(root);
		this.adopt();
		this.settle();
		this.zoomed(this.root);
	}

	redraw() {
		this.chart.update();
		this.settle();
		this.mark();
	}

	// Ends all animations at once: only the reader's zooming is animated.
	settle() {
		const scale = this.chart.width() / (this.root.x1 - this.root.x0);
		const height = Number(select(this.element).select("svg").attr("height"));
		const frames = select(this.element).selectAll("g.frame");

		frames.interrupt().attr("transform", (node) => {
			const down = this.inverted ? node.depth * this.cell : height - (node.depth + 1) * this.cell;
			return `translate(${node.x0 * scale},${down})`;
		});
		frames.select("rect").interrupt().attr("width", (node) => (node.x1 - node.x0) * scale);
		frames.select("foreignObject").select("div").interrupt().text((node) => node.data.name);
	}

	turn(inverted) {
		this.setView(inverted);
		this.redraw();
	}

	resize() {
		const width = this.element.clientWidth;
		if (!width || width === this.chart.width())
			return;
		this.chart.width(width);
		this.redraw();
	}

	// Returns { count, sum }: matching frames, and their weight without double counting. Throws what RegExp throws.
	search(text) {
		this.matches = matcher(text);
		this.searching = text !== "";
		this.chart.search(text);
		this.settle();
		this.mark();
		return this.found;
	}

	// By number (position in the tree, depth first) or by name (the widest frame of that name).
	find(key) {
		if (/^\d+$/.test(key))
			return this.nodes.find((node) => node.id === Number(key)) || null;
		return this.nodes.reduce((best, node) =>
			(node.data.name === key && (!best || node.data.value > best.data.value) ? node : best), null);
	}

	zoomTo(node) {
		this.chart.zoomTo(node);
	}

	zoomed(node) {
		this.zoom = node;
		this.moveTo(node);
		this.listener.zoomed(node);
	}

	moveTo(node) {
		this.current = node;
		this.mark();
		this.listener.current(node);
	}

	// The current frame is outlined once the reader has moved to one.
	mark() {
		const current = this.current === this.root ? null : this.current;
		select(this.element).selectAll("g.frame")
			.attr("data-current", (node) => (node === current ? "" : null));
	}

	visible(node) {
		return node && !node.data.hide && node.value > 0;
	}

	sibling(node, step) {
		// Neighbours in the same row, under other callers too.
		const row = this.nodes.filter((other) => other.depth === node.depth && this.visible(other) &&
			(other.x1 - other.x0) * this.chart.width() / (this.root.x1 - this.root.x0) > NARROWEST);
		row.sort((a, b) => a.x0 - b.x0);
		return row[row.indexOf(node) + step];
	}

	// True if KEY was handled.
	key(key) {
		const outwards = this.inverted ? "ArrowUp" : "ArrowDown";
		const inwards = this.inverted ? "ArrowDown" : "ArrowUp";
		const widest = (this.current.children || []).reduce((best, child) =>
			(!best || child.value > best.value ? child : best), null);
		const target = {
			[outwards]: this.current.parent,
			[inwards]: widest,
			ArrowLeft: this.sibling(this.current, -1),
			ArrowRight: this.sibling(this.current, 1),
			Home: this.root,
		};
		if (key === "Enter" || key === " ")
			this.zoomTo(this.current);
		else if (key === "Escape")
			this.zoomTo(this.root);
		else if (!(key in target))
			return false;
		else if (this.visible(target[key]))
			this.moveTo(target[key]);
		return true;
	}
}
