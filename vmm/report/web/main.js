/* SPDX-License-Identifier: Apache-2.0 */
import { readAddress, writeAddress } from "./address.js";
import { count, percent } from "./format.js";
import { Graph } from "./graph.js";
import { HeatMap } from "./heatmap.js";
import { markEvent, shares, showAbout, showDetails, showEvents, showLegend } from "./panels.js";
import { readProfile, relativeChange } from "./profile.js";
import { FunctionTable } from "./table.js";
import { changeColor, frameColor, startTheme } from "./theme.js";
import { arrange, sandwich } from "./tree.js";

const { events, read } = readProfile();
const address = readAddress();
const byId = (id) => document.getElementById(id);
let shown = Math.max(events.findIndex((each) => each.event === address.event), 0); // that is shown
let profile = read(shown);
let { about, root, functions } = profile; // of the selected time
const input = byId("search");
const matched = byId("matched");
const reset = byId("reset");
const invert = byId("invert");
const recursion = byId("recursion");
const stage = byId("graph");
const hidden = new Set(address.hide.split(",").filter(Boolean));
let merged = address.recursion === "merged";
let tree = arrange(root, hidden, merged);
let pinned = false; // the details stay those of the frame that was selected
let chosen = null; // the function whose callers and callees are shown

// Before the graph, as it takes room above it. On a phone it opens with a touch.
function openTime() {
	byId("time").hidden = false;
	byId("time").open = window.innerWidth > 640 || Boolean(address.time);
	return new HeatMap(profile.about, profile.times, { selected: select });
}

const heatMap = profile.times ? openTime() : null;

function createGraph(element, data, view, zoomed) {
	const made = new Graph(element, data, view, {
		label: (node) => `${node.data.name} - ${shares(about, node.data)}`,
		color: (data, dimmed) => (about.differs ? changeColor(relativeChange(about, data), dimmed) : frameColor(data, dimmed)),
		hovered: (node) => pinned || details(made, node),
		current: (node) => {
			pinned = node !== made.root;
			details(made, node);
		},
		zoomed,
	});
	made.draw();
	new ResizeObserver(() => requestAnimationFrame(() => made.resize())).observe(element);
	return made;
}

const graph = createGraph(stage, tree, address.view, (node) => {
	reset.disabled = !node.parent;
	stage.dataset.zoom = node.data.name;
	writeAddress({ zoom: node.parent ? String(node.id) : "" });
});
const graphs = [graph]; // and those of callers and callees, when they were needed

function details(of, node) {
	const actions = node.data.kind === "process" ? [] : [["Callers and callees", () => showFunction(node.data)]];
	if (pinned)
		actions.push(["Unpin", () => of.moveTo(of.root)]);
	showDetails(about, node, of.zoom, actions, (caller) => of.zoomTo(caller));
}

// Callers grow upwards from the function, callees downwards.
function drawSandwich(trees) {
	byId("sandwich-title").textContent = `Callers and callees of ${trees.callees.name}`;
	byId("sandwich").hidden = false;
	if (graphs.length === 1) {
		graphs.push(createGraph(byId("callers"), trees.callers, "flame", () => {}),
			createGraph(byId("callees"), trees.callees, "icicle", () => {}));
	} else {
		graphs[1].show(trees.callers);
		graphs[2].show(trees.callees);
	}
	search(input.value.trim());
}

// DATA has the function, or is null. False if no frame of it is shown.
function drawFunction(data) {
	const trees = data && sandwich(tree, data.frame);
	chosen = trees ? data : null;
	writeAddress({ function: trees ? data.name : "" });
	if (trees)
		drawSandwich(trees);
	else
		byId("sandwich").hidden = true;
	return Boolean(trees);
}

function showFunction(data) {
	if (!drawFunction(data))
		return;
	byId("sandwich-title").focus();
	byId("sandwich").scrollIntoView({ block: "nearest" });
}

function showEvent(index) {
	const before = chosen;

	shown = index;
	profile = read(index);
	chosen = before && profile.functions.find((row) => row.name === before.name && row.image === before.image);
	if (before && !chosen)
		drawFunction(null);
	showAbout(profile.about);
	markEvent(index);
	heatMap.replace(profile.about, profile.times); // selects
	legend();
	writeAddress({ event: index ? events[index].event : "" });
}

// PART of the recording, or undefined for all of it.
function select(part, range, vcpus) {
	about = part ? { ...profile.about, weight: part.weight, after: part.weight, samples: part.samples } : profile.about;
	({ root, functions } = part || profile);
	pinned = false;
	table.show(about, functions);
	rearrange();
	writeAddress({ time: range ? range.join(",") : "",
		vcpus: vcpus.size < profile.times.vcpus.length ? [...vcpus].join(",") : "" });
}

// After a change of what is shown.
function rearrange() {
	recursion.setAttribute("aria-pressed", String(merged));
	tree = arrange(root, hidden, merged);
	graph.show(tree);
	search(input.value.trim());
	if (chosen)
		drawFunction(chosen);
	writeAddress({ hide: [...hidden].join(","), recursion: merged ? "merged" : "" });
}

function search(text) {
	try {
		const [found] = graphs.map((each) => each.search(text));
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

function legend() {
	showLegend(root, hidden, (kind) => {
		if (!hidden.delete(kind))
			hidden.add(kind);
		rearrange();
	});
}

function onKey(event) {
	const focused = graphs.find((each) => each.element === document.activeElement);
	if (event.ctrlKey || event.metaKey || event.altKey)
		return;
	if (event.key === "/" && document.activeElement !== input) {
		input.focus();
		event.preventDefault();
	} else if (event.key === "Escape" && document.activeElement === input) {
		searchFor("");
		stage.focus();
	} else if (focused && event.key.toLowerCase() === "c") {
		showFunction(focused.current.data);
	} else if (focused && event.key.toLowerCase() === "e") {
		showEvent((shown + 1) % events.length);
	} else if (focused && focused.key(event.key)) {
		event.preventDefault();
	}
}

const table = new FunctionTable(about, functions, (row) => {
	searchFor("=" + row.name);
	showFunction(row);
});

startTheme(byId("theme"), address.theme, (theme) => {
	legend();
	table.draw();
	graphs.forEach((each) => each.redraw());
	heatMap?.draw();
	writeAddress({ theme: theme || "" });
});
showAbout(about);
showEvents(events, showEvent);
markEvent(shown);
legend();
table.draw();
recursion.setAttribute("aria-pressed", String(merged));
details(graph, graph.root);
invert.setAttribute("aria-pressed", String(graph.inverted));
if (address.zoom) {
	const node = graph.find(address.zoom);
	if (node) {
		graph.zoomTo(node);
		graph.settle();
	}
}
if (heatMap && (address.time || address.vcpus))
	heatMap.choose(...heatMap.read(address.time, address.vcpus));
if (address.search)
	searchFor(address.search);
if (address.function)
	showFunction(functions.find((row) => row.name === address.function) || null);

let typing = 0;
input.addEventListener("input", () => {
	clearTimeout(typing);
	typing = setTimeout(() => search(input.value.trim()), 120);
});
reset.addEventListener("click", () => graph.zoomTo(graph.root));
invert.addEventListener("click", () => {
	graph.turn(!graph.inverted);
	invert.setAttribute("aria-pressed", String(graph.inverted));
	writeAddress({ view: graph.inverted ? "icicle" : "flame" });
});
recursion.addEventListener("click", () => {
	merged = !merged;
	rearrange();
});
byId("close").addEventListener("click", () => {
	showFunction(null);
	stage.focus();
});
document.addEventListener("keydown", onKey);
