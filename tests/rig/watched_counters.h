/* SPDX-License-Identifier: Apache-2.0 */
/* A watch of a variable that each of two CPUs has for itself and counts up. Main thread only. */
#ifndef KVMSCOPE_TESTS_RIG_WATCHED_COUNTERS_H
#define KVMSCOPE_TESTS_RIG_WATCHED_COUNTERS_H

/*
 * Of DEBIAN_WATCHED in the recording in DIRECTORY: each CPU's own, so each value that it had was
 * seen, but for samples that were told to be lost. HITS: what the run said that there were, 0 if it
 * did not. A failure is the test's; WHAT names the recording in what is printed.
 */
void watched_counters_check(const char *what, const char *directory, unsigned long long hits);

#endif
