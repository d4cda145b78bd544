/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's 6.1 with its BTF overwritten in its image, and what could be given in place of it. */
#ifndef KVMSCOPE_TESTS_RIG_WITHOUT_BTF_H
#define KVMSCOPE_TESTS_RIG_WITHOUT_BTF_H

#include <stdbool.h>

#define WITHOUT_BTF_VERSION "6.1"
#define WITHOUT_BTF         "build/rig/without-btf"
#define WITHOUT_BTF_KERNEL  WITHOUT_BTF "/kernel" /* the ELF file */
/* Its BTF has other names for what is looked for: without any the kernel loads no BPF programs. */
#define WITHOUT_BTF_NAMES   WITHOUT_BTF "/nameless"
#define WITHOUT_BTF_RAW     WITHOUT_BTF "/raw"     /* what was overwritten */
#define WITHOUT_BTF_ELF     WITHOUT_BTF "/elf"     /* the kernel as it was */
#define WITHOUT_BTF_ANOTHER WITHOUT_BTF "/another" /* Debian's 5.10, an ELF file with its BTF */

/*
 * Makes them, by the first call. False: they could not be made, which is the test's failure or
 * skip. RIG_REQUIRED() before.
 */
bool without_btf_make(void);

#endif
