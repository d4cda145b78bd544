/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of a guest kernel as an ELF core file, in the form of /proc/kcore
 * as far as perf reads it (tools/perf/util/symbol-elf.c): a PT_LOAD for each
 * range of code, at the addresses it has in the guest.
 */
#ifndef KVMSCOPE_SYMBOLS_KCORE_H
#define KVMSCOPE_SYMBOLS_KCORE_H

#include "vmm/symbols/build_id_cache.h"

/*
 * Writes the file to FD, which is empty. Pages that are not mapped in the
 * guest are holes. The kernel is one PT_LOAD with all of its image, and the
 * last thing in the file, which ends behind the text: what comes after it may
 * have been code while the kernel started, and has names but no content. (In
 * a PT_LOAD of its own it would be lost on perf, which fits one map after the
 * other, the first PT_LOAD last, into the one that it has for the kernel.)
 * The errors of pwrite(); sizes that no kernel has are -EINVAL.
 */
int kcore_write(int fd, const struct kernel_image *image, const struct guest_view *view,
		const struct guest_paging *paging);

#endif
