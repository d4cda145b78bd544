/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions with known shares of the time, compiled by V8: node --perf-basic-prof hot.js ROUNDS
 * SECONDS runs until both are over and prints
 *
 *	node: PID TIME TIME TIME SUM
 *
 * the CPU time in us of hot60, hot30 and hot10: for each, its number of calls times the mean of the
 * faster half of them. This excludes the work of V8 before it compiled the functions and stalls of
 * the machine. All calls have the same number of steps, so anything that slows down everything
 * affects them alike.
 */
"use strict";

function hot60(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function hot30(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function hot10(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }

const STEPS = 600000; /* some ms, suited to the clock's resolution */
const tasks = [[hot60, 6], [hot30, 3], [hot10, 1]].map(
	([run, calls]) => ({ run, calls, times: [] }));
const [rounds, seconds] = process.argv.slice(2).map(Number);
const begun = Date.now();
let sum = 0;

function call(task) {
	const before = process.cpuUsage();

	sum += task.run(STEPS);
	const { user, system } = process.cpuUsage(before);
	task.times.push(user + system);
}

function timeOf({ times }) {
	const faster = times.sort((a, b) => a - b).slice(0, Math.ceil(times.length / 2));

	return times.length * faster.reduce((a, b) => a + b) / faster.length;
}

for (let round = 0; round < rounds || Date.now() - begun < 1000 * seconds; round++)
	for (const task of tasks)
		for (let i = 0; i < task.calls; i++)
			call(task);
console.log("node: " + [process.pid, ...tasks.map(timeOf), sum].join(" "));
