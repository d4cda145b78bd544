/* SPDX-License-Identifier: Apache-2.0 */
/* Call chains of Linux under a workload of system calls: how many reach the entry of the kernel. */
#ifndef KVMSCOPE_TESTS_RIG_SYSTEM_CALL_CHAINS_H
#define KVMSCOPE_TESTS_RIG_SYSTEM_CALL_CHAINS_H

/*
 * Checks DIRECTORY/perf.data with the build-id cache DIRECTORY/.debug, for which "workload shares"
 * ran in VERSION's kernel: 95 % of the samples in system calls, and 90 % of all samples in the
 * kernel that have a caller, reach an entry.
 */
void system_call_chains_check(const char *version, const char *directory);

#endif
