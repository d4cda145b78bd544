/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call chains of a guest that hits its own breakpoints and receives backtrace NMIs
 * (tests/rig/guest/exceptions.c): they continue from the stacks of these exceptions to the
 * interrupted code.
 */
#ifndef KVMSCOPE_TESTS_RIG_EXCEPTION_CHAINS_H
#define KVMSCOPE_TESTS_RIG_EXCEPTION_CHAINS_H

#define EXCEPTIONS_PROGRAM "build/rig/exceptions"

/*
 * Checks all chains in DIRECTORY/perf.data that contain the handler of a breakpoint or an NMI.
 * After a breakpoint's handler comes the instruction with the breakpoint, in the kernel or in the
 * program; each kernel frame is called or was interrupted by the next one; the program's frames
 * match its calls. Nearly all chains reach the program, for breakpoints in the kernel and in the
 * program and for NMIs in the kernel (with 5.10 only if NMIs are sampled). The kernel's code is
 * read from CODE_DIRECTORY, which is of another boot of VERSION's kernel.
 */
void exception_chains_check(const char *version, const char *directory, const char *code_directory);

#endif
