/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a watch on a per-CPU counter of two CPUs. Main thread only. */
#ifndef KVMSCOPE_TESTS_RIG_WATCHED_COUNTERS_H
#define KVMSCOPE_TESTS_RIG_WATCHED_COUNTERS_H

/*
 * Checks DEBIAN_WATCHED in the recording in DIRECTORY: each CPU has its own counter, so every value
 * must have a sample, except those reported as lost. HITS: the total number of hits that the run
 * reported, 0 if it did not. Mismatches fail the test; WHAT names the recording in the output.
 */
void watched_counters_check(const char *what, const char *directory, unsigned long long hits);

#endif
