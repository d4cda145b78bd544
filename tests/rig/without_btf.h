/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's 6.1 with its BTF overwritten in its image, and the possible replacements. */
#ifndef KVMSCOPE_TESTS_RIG_WITHOUT_BTF_H
#define KVMSCOPE_TESTS_RIG_WITHOUT_BTF_H

#include <stdbool.h>

#define WITHOUT_BTF_VERSION "6.1"
#define WITHOUT_BTF         "build/rig/without-btf"
#define WITHOUT_BTF_KERNEL  WITHOUT_BTF "/kernel" /* the ELF file */
/*
 * In its BTF the names that kvmscope looks up are changed: without any BTF the kernel loads no BPF
 * programs.
 */
#define WITHOUT_BTF_NAMES   WITHOUT_BTF "/nameless"
#define WITHOUT_BTF_RAW     WITHOUT_BTF "/raw"     /* the overwritten BTF */
#define WITHOUT_BTF_ELF     WITHOUT_BTF "/elf"     /* the unmodified kernel */
#define WITHOUT_BTF_ANOTHER WITHOUT_BTF "/another" /* Debian's 5.10, an ELF file with its BTF */

/*
 * Makes the files, by the first call. False: not possible, which is recorded as the test's failure
 * or skip. Call RIG_REQUIRED() before.
 */
bool without_btf_make(void);

#endif
