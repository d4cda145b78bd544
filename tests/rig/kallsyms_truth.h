/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the symbols read from guest memory, with KASLR and modules, with the /proc/kallsyms of
 * the guest's kernel: the guest writes that to its disk, and kvmscope writes its symbols to the
 * build-id cache.
 */
#ifndef KVMSCOPE_TESTS_RIG_KALLSYMS_TRUTH_H
#define KVMSCOPE_TESTS_RIG_KALLSYMS_TRUTH_H

/*
 * Checks the recording in DIRECTORY, which also has the disk. The guest's modules have at least 50
 * symbols.
 */
void kallsyms_truth_check(const char *directory);

#endif
