/* SPDX-License-Identifier: Apache-2.0 */
// Everything around the graph: facts of the recording, the selected frame, the table of functions.
// Names come from the guest: they become text nodes, never markup.

import { count, duration, percent, points } from "./format.js";
import { changeOf, KINDS } from "./profile.js";
import { kindColor, LABELS } from "./theme.js";

export function element(tag, properties, ...children) {
	const made = Object.assign(document.createElement(tag), properties);
	made.append(...children);
	return made;
}

function several(number, what) {
	return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

function pair(term, value, className) {
	return element("div", { className: className || "" }, element("dt", {}, term), element("dd", {}, value));
}

export function amount(about, weight) {
	return about.unit === "ns" ? duration(weight) : count(weight);
}

// One line about DATA's part of the time.
export function shares(about, data) {
	if (about.differs)
		return `${percent(data.before, about.before)} before, ${percent(data.after, about.after)} after, ${points(changeOf(about, data))}`;
	return `${percent(data.value, about.weight)}, ${amount(about, data.value)}`;
}

function where(about) {
	if (about.differs)
		return "Difference of two recordings: red is more of the time than before, blue is less; the width is the mean of both";
	if (about.hostname)
		return `Flame graph of ${about.hostname}` + (about.arch ? `, ${about.arch}` : "");
	return about.arch ? `Flame graph of a guest, ${about.arch}` : "Flame graph of a guest";
}

export function showAbout(about) {
	const guest = about.release ? `Linux ${about.release}` : "Flame graph";
	const facts = document.getElementById("facts");
	const clock = about.frequency ? `${about.event}, ${count(about.frequency)} Hz` : about.event;

	document.body.classList.toggle("differs", about.differs);
	document.title = `${guest} - flame graph`;
	document.getElementById("title").replaceChildren(guest,
		element("small", {}, where(about)));
	facts.replaceChildren(pair("Event", clock));
	if (about.differs)
		facts.append(pair("Samples before", count(about.samplesBefore)), pair("after", count(about.samples)));
	else
		facts.append(pair("Samples", count(about.samples)), pair(about.unit === "ns" ? "Time" : "Sum", amount(about, about.weight)));
	if (about.vcpus)
		facts.append(pair("vCPUs", count(about.vcpus)));
	facts.append(pair("Lost", count(about.lost), about.lost ? "bad" : ""));
	if (about.command) {
		const command = document.getElementById("command");
		command.querySelector("code").textContent = about.command;
		command.hidden = false;
	}
	showNotes(about);
}

function showNotes(about) {
	const notes = document.getElementById("notes");
	const text = [];

	if (about.cutOff)
		text.push("The recording is still running, or was truncated: this is what was written.");
	if (about.times)
		text.push(`Only a part of the recording: --time ${about.times}.`);
	if (about.skipped)
		text.push(`Skipped: ${several(about.skipped, "record")} of unknown kinds.`);
	if (about.omitted)
		text.push(`Left out: ${several(about.omitted, "frame")} too narrow to see.`);
	if (about.note)
		text.push(`No kernel symbols: ${about.note}.`);
	notes.textContent = text.join(" ");
	notes.hidden = text.length === 0;
}

const EVENTS = { "cpu-clock": "CPU time", "kvm:exit": "Exits", "kvm:off-cpu": "Off CPU" };

// Each event is a button; SHOWN is called with its index.
export function showEvents(events, shown) {
	const group = document.getElementById("events");

	group.hidden = events.length < 2;
	group.replaceChildren(...events.map((about, index) => element("button", { type: "button", title: about.event,
		onclick: () => shown(index) }, EVENTS[about.event] || about.event,
		element("small", {}, amount(about, about.weight)))));
}

export function markEvent(shown) {
	[...document.getElementById("events").children].forEach((button, index) => {
		button.ariaPressed = String(index === shown);
	});
}

// Each kind of frame is a button; SWITCHED is called with the kind, HIDDEN has those not shown.
export function showLegend(root, hidden, switched) {
	const legend = document.getElementById("legend");
	const present = new Set();
	(function visit(data) {
		present.add(data.kind);
		data.children.forEach(visit);
	})(root);
	legend.replaceChildren(...["kernel", "module", "user", "unknown", "host", "process"]
		.filter((kind) => present.has(kind) && KINDS.includes(kind))
		.map((kind) => {
			const swatch = element("i", {});
			const button = element("button", { type: "button", ariaPressed: String(!hidden.has(kind)),
				title: "Show or hide these frames; the time of hidden frames is their callers'" }, swatch, LABELS[kind]);
			swatch.style.background = kindColor(kind);
			button.addEventListener("click", () => {
				switched(kind);
				button.ariaPressed = String(!hidden.has(kind));
			});
			return element("li", {}, button);
		}));
}

function callers(node, zoom) {
	const path = element("nav", { ariaLabel: "Callers" });
	node.ancestors().reverse().slice(0, -1).forEach((caller, depth) => {
		if (depth)
			path.append("\u203a ");
		path.append(element("button", { type: "button", onclick: () => zoom(caller) }, caller.data.name));
	});
	return path;
}

// WITHIN is the zoomed node. ACTIONS are buttons: [[text, called with the node], ...]. ZOOM is called
// with a caller that is clicked.
export function showDetails(about, node, within, actions, zoom) {
	const { data } = node;
	const total = about.differs ? shares(about, data) : `${percent(data.value, about.weight)} \u00b7 ${amount(about, data.value)}`;
	const self = about.differs ? `${percent(data.selfBefore, about.before)} before, ${percent(data.self, about.after)} after` :
		`${percent(data.self, about.weight)} \u00b7 ${amount(about, data.self)}`;
	const numbers = element("dl", {}, pair("Total", total), pair("Self", self),
		pair("Samples", count(data.samples) + (about.differs ? " after" : "")));

	if (within.parent && node !== within)
		numbers.append(pair(`Of ${within.data.name}`, percent(data.value, within.data.value)));
	document.getElementById("details").replaceChildren(
		element("div", { className: "actions" }, ...actions.map(([text, act]) =>
			element("button", { type: "button", onclick: () => act(node) }, text))),
		element("div", { className: "name" }, data.name + " ",
			element("span", { className: "image" }, data.kind === "process" ? "" : data.image)),
		numbers);
	if (node.parent) {
		const path = callers(node, zoom);
		document.getElementById("details").append(path);
		path.scrollLeft = path.scrollWidth;
	}
}
