/* SPDX-License-Identifier: Apache-2.0 */
// Turns the search text into a test of one frame: /regular expression/, =exact name, or part of a name.

export function matcher(text) {
	if (!text)
		return () => false;
	if (text.length > 2 && text.startsWith("/") && text.endsWith("/")) {
		const expression = new RegExp(text.slice(1, -1), "i");
		return (data) => expression.test(data.name) || expression.test(data.image);
	}
	if (text.startsWith("="))
		return (data) => data.name === text.slice(1);
	const part = text.toLowerCase();
	return (data) => data.name.toLowerCase().includes(part) || data.image.toLowerCase().includes(part);
}
