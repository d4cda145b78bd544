/* SPDX-License-Identifier: Apache-2.0 */
// Numbers for people.

const grouped = new Intl.NumberFormat("en");

export function count(value) {
	return grouped.format(value);
}

export function percent(part, whole) {
	if (!part || !whole)
		return "0%";
	const share = (100 * part) / whole;
	if (share >= 99.95)
		return part === whole ? "100%" : "99.9%";
	if (share > 0 && share < 0.01)
		return "<0.01%";
	return share.toFixed(share < 1 ? 2 : 1) + "%";
}

// A difference of two shares, in points of percent.
export function points(change) {
	return (change < 0 ? "\u2212" : "+") + Math.abs(100 * change).toFixed(2) + "%";
}

// Nanoseconds with three digits of precision.
export function duration(nanoseconds) {
	if (nanoseconds === 0)
		return "0 s";
	const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
	for (const [size, name] of units) {
		if (nanoseconds >= size) {
			const value = nanoseconds / size;
			return (value >= 100 ? grouped.format(Math.round(value)) : value.toPrecision(3)) + " " + name;
		}
	}
	return nanoseconds + " ns";
}

// Nanoseconds, a BigInt, as seconds with nine digits.
export function exactSeconds(nanoseconds) {
	return `${nanoseconds / 1000000000n}.${String(nanoseconds % 1000000000n).padStart(9, "0")}`;
}

// Nanoseconds as seconds.
export function seconds(nanoseconds, digits = 3) {
	return (nanoseconds / 1e9).toFixed(digits);
}
