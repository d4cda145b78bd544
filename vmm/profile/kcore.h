/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of a guest kernel as an ELF core file, in the form of /proc/kcore
 * as far as perf reads it (tools/perf/util/symbol-elf.c): a PT_LOAD for each
 * range of code, at the addresses it has in the guest.
 */
#ifndef KVMSCOPE_PROFILE_KCORE_H
#define KVMSCOPE_PROFILE_KCORE_H

#include "vmm/profile/build_id_cache.h"

/*
 * Writes the file to FD, which is empty. Pages that are not mapped in the
 * guest are holes. The rest of the image behind its text, which may hold
 * code that was there only while the kernel started, is named by a PT_LOAD
 * that lies behind the end of the file: it has addresses and no content. The
 * errors of pwrite(); sizes that no kernel has are -EINVAL.
 */
int kcore_write(int fd, const struct kernel_image *image, const struct guest_view *view,
		const struct guest_paging *paging);

#endif
