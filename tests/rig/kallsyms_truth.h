/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols that were read from a guest's memory, KASLR and modules included, against what its
 * kernel itself shows in /proc/kallsyms: the guest writes that to its disk, and kvmscope puts its
 * own into the build-id cache.
 */
#ifndef KVMSCOPE_TESTS_RIG_KALLSYMS_TRUTH_H
#define KVMSCOPE_TESTS_RIG_KALLSYMS_TRUTH_H

/* Of the recording in DIRECTORY, with the disk in it: the guest's modules have 50 symbols at least.
 */
void kallsyms_truth_check(const char *directory);

#endif
