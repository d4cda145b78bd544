/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callchains of a guest that runs into breakpoints of its own and is asked by NMIs what it does
 * (tests/rig/guest/exceptions.c): from the stacks of these exceptions on to what they interrupted.
 */
#ifndef KVMSCOPE_TESTS_RIG_EXCEPTION_CHAINS_H
#define KVMSCOPE_TESTS_RIG_EXCEPTION_CHAINS_H

#define EXCEPTIONS_PROGRAM "build/rig/exceptions"

/*
 * Of all chains in DIRECTORY/perf.data that lead through the handler of a breakpoint or an NMI:
 * behind a breakpoint's is its very instruction, in the kernel or in the program; each frame of the
 * kernel is what the next one calls, or has interrupted; the program's are its calls. Next to all
 * reach the program, of breakpoints in the kernel as in the program, and of NMIs in the kernel
 * (of 5.10 those that are met). The kernel's code is that of CODE_DIRECTORY, of another boot of
 * VERSION's kernel.
 */
void exception_chains_check(const char *version, const char *directory, const char *code_directory);

#endif
