/* SPDX-License-Identifier: Apache-2.0 */
// The view as part of the address, which can be sent to somebody who has the same file:
//   #search=TEXT & zoom=NUMBER or NAME & view=flame|icicle & theme=light|dark
//   & hide=KIND,... & recursion=merged & function=NAME (its callers and callees)
//   & event=NAME
//   & time=FIRST,LAST (cells of the heat map) & vcpus=NUMBER,... (strips that are shown)

export function readAddress() {
	const values = new URLSearchParams(window.location.hash.slice(1));
	return {
		search: values.get("search") || "",
		zoom: values.get("zoom") || "",
		view: values.get("view") || "",
		theme: values.get("theme") || "",
		hide: values.get("hide") || "",
		recursion: values.get("recursion") || "",
		function: values.get("function") || "",
		event: values.get("event") || "",
		time: values.get("time") || "",
		vcpus: values.get("vcpus") || "",
	};
}

export function writeAddress(changes) {
	const next = { ...readAddress(), ...changes };
	const values = new URLSearchParams();
	for (const [key, value] of Object.entries(next)) {
		if (value)
			values.set(key, value);
	}
	const text = values.toString();
	window.history.replaceState(null, "", text ? "#" + text : window.location.pathname + window.location.search);
}
