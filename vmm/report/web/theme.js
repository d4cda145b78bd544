/* SPDX-License-Identifier: Apache-2.0 */
// Light or dark as the system prefers, until the reader chooses; and the colours of frames in both.

const HUES = {
	process: [165, 26], // hue, saturation in percent
	kernel: [33, 88],
	module: [275, 58],
	user: [205, 72],
	unknown: [0, 0],
	host: [85, 40],
};

export const LABELS = {
	kernel: "Kernel",
	module: "Kernel module",
	user: "User space",
	unknown: "Unknown",
	host: "Outside the guest",
	process: "vCPU or process",
};

const system = window.matchMedia("(prefers-color-scheme: dark)");
let chosen = null;

export function isDark() {
	return chosen === null ? system.matches : chosen === "dark";
}

function apply() {
	document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

// CHANGED is called after each change.
export function startTheme(button, initial, changed) {
	chosen = initial === "dark" || initial === "light" ? initial : null;
	apply();
	button.addEventListener("click", () => {
		chosen = isDark() ? "light" : "dark";
		apply();
		changed(chosen);
	});
	system.addEventListener("change", () => {
		apply();
		changed(chosen);
	});
}

// A number in [0, 1) that is the same for the same name.
function hash(name) {
	let value = 2166136261;
	for (let i = 0; i < name.length; i++)
		value = Math.imul(value ^ name.charCodeAt(i), 16777619);
	return (value >>> 8) / 0x1000000;
}

// From blue (-1: gone) to red (1: new).
export function changeColor(change, dimmed) {
	const strength = Math.abs(change);
	const light = isDark() ? 70 - 12 * strength : 90 - 30 * strength;

	return `hsl(${change < 0 ? 215 : 5} ${dimmed ? 12 : 8 + 77 * strength}% ${light}%)`;
}

export function frameColor(data, dimmed) {
	const [hue, saturation] = HUES[data.kind];
	const vary = hash(data.name);
	const light = (isDark() ? 58 : 66) + vary * 12;

	if (dimmed)
		return `hsl(${hue} ${saturation * 0.15}% ${isDark() ? 42 + vary * 5 : 84 + vary * 5}%)`;
	return `hsl(${hue + (vary - 0.5) * 14} ${saturation}% ${light}%)`;
}

export function kindColor(kind) {
	const [hue, saturation] = HUES[kind];
	return `hsl(${hue} ${saturation}% ${isDark() ? 62 : 70}%)`;
}

export function matchColor() {
	return isDark() ? "hsl(328 85% 68%)" : "hsl(328 85% 70%)";
}

// From the page's own colour for 0 to the strongest for 1: [red, green, blue, opacity].
const HEAT = {
	light: [[244, 245, 247], [250, 204, 120], [214, 72, 30], [110, 10, 40]],
	dark: [[29, 33, 39], [120, 60, 20], [235, 120, 40], [255, 235, 170]],
};

export function heatColor(part) {
	const stops = HEAT[isDark() ? "dark" : "light"];
	const place = part * (stops.length - 1);
	const below = Math.min(Math.floor(place), stops.length - 2);

	return [...stops[below].map((value, i) => value + (stops[below + 1][i] - value) * (place - below)), 255];
}
