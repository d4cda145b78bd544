/* SPDX-License-Identifier: Apache-2.0 */
/* Functions with known shares of the time, as V8 compiles them: node --perf-basic-prof hot.js ROUNDS SECONDS,
 * which ends when both are over. */
"use strict";

function hot60(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function hot30(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 33 + i) | 0; return s; }
function hot10(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 35 + i) | 0; return s; }

const [rounds, seconds] = process.argv.slice(2).map(Number);
const begun = Date.now();
let sum = 0;

for (let round = 0; round < rounds || Date.now() - begun < 1000 * seconds; round++)
	sum += hot60(600000) + hot30(300000) + hot10(100000);
console.log("node: " + process.pid + " did " + sum);
