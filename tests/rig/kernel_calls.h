/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callchains of a guest's kernel against its code: whether each frame's function is what the next frame's
 * return address has called, by the instructions that stand there.
 */
#ifndef KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H
#define KVMSCOPE_TESTS_RIG_KERNEL_CALLS_H

/* Where the guest's disk has the kernel's code (tests/rig/guest/kernel_text.c), behind its /proc/kallsyms: 16
 * MiB. */
#define KERNEL_TEXT_OFFSET "16777216"

/*
 * Of all kernel chains in DIRECTORY/perf.data, of VERSION's kernel, with DIRECTORY/disk: half of the callers
 * at least are told by a direct call, and of all, one in 2000 at most is one that calls something else, or
 * nothing. Those by a register or memory may call anything; what entry code interrupted has not called it;
 * the code of modules is not looked at.
 */
void kernel_calls_check(const char *version, const char *directory);

#endif
