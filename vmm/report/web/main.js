/* SPDX-License-Identifier: Apache-2.0 */
import { readAddress, writeAddress } from "./address.js";
import { count, percent } from "./format.js";
import { Graph } from "./graph.js";
import { amount, showAbout, showDetails, showFunctions, showLegend } from "./panels.js";
import { readProfile } from "./profile.js";
import { startTheme } from "./theme.js";

const { about, root, functions } = readProfile();
const input = document.getElementById("search");
const matched = document.getElementById("matched");
const reset = document.getElementById("reset");
const invert = document.getElementById("invert");
const stage = document.getElementById("graph");
const address = readAddress();

const graph = new Graph(stage, root, {
	label: (node) => `${node.data.name} - ${percent(node.data.value, about.weight)}, ${amount(about, node.data.value)}`,
	hovered: (node) => details(node),
	current: (node) => details(node),
	zoomed: (node) => {
		reset.disabled = !node.parent;
		stage.dataset.zoom = node.data.name;
		writeAddress({ zoom: node.parent ? String(node.id) : "" });
	},
});

function details(node) {
	showDetails(about, node, graph.zoom, (caller) => graph.zoomTo(caller));
}

function search(text) {
	try {
		const found = graph.search(text);
		matched.textContent = text ? `${percent(found.sum, about.weight)} \u00b7 ${count(found.count)} frame${found.count === 1 ? "" : "s"}` : "";
		matched.className = "";
	} catch (error) {
		matched.textContent = "not a regular expression";
		matched.className = "bad";
	}
	writeAddress({ search: text });
}

function searchFor(text) {
	input.value = text;
	search(text);
}

function turn(icicle) {
	invert.setAttribute("aria-pressed", String(icicle));
	graph.turn(icicle);
}

function panels() {
	showLegend(root);
	showFunctions(about, functions, (name) => {
		searchFor("=" + name);
		stage.scrollIntoView({ block: "nearest" });
	});
}

function onKey(event) {
	if (event.ctrlKey || event.metaKey || event.altKey)
		return;
	if (event.key === "/" && document.activeElement !== input) {
		input.focus();
		event.preventDefault();
	} else if (event.key === "Escape" && document.activeElement === input) {
		searchFor("");
		stage.focus();
	} else if (document.activeElement === stage && graph.key(event.key)) {
		event.preventDefault();
	}
}

startTheme(document.getElementById("theme"), address.theme, (theme) => {
	panels();
	graph.redraw();
	writeAddress({ theme: theme || "" });
});
showAbout(about);
panels();
graph.draw();
details(graph.root);
// An icicle is easier to read if the whole graph does not fit.
turn(address.view ? address.view === "icicle" : stage.getBoundingClientRect().bottom > window.innerHeight);
if (address.zoom) {
	const node = graph.find(address.zoom);
	if (node) {
		graph.zoomTo(node);
		graph.settle();
	}
}
if (address.search)
	searchFor(address.search);

let typing = 0;
input.addEventListener("input", () => {
	clearTimeout(typing);
	typing = setTimeout(() => search(input.value.trim()), 120);
});
reset.addEventListener("click", () => graph.zoomTo(graph.root));
invert.addEventListener("click", () => {
	const next = !graph.inverted;
	turn(next);
	writeAddress({ view: next ? "icicle" : "flame" });
});
document.addEventListener("keydown", onKey);
new ResizeObserver(() => requestAnimationFrame(() => graph.resize())).observe(stage);
