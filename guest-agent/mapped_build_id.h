/* SPDX-License-Identifier: Apache-2.0 */
/* The build id of a program or library: the note that tells one build from another. */
#ifndef KVMSCOPE_GUEST_AGENT_MAPPED_BUILD_ID_H
#define KVMSCOPE_GUEST_AGENT_MAPPED_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

#define BUILD_ID_MAX 20

/* Of the 64-bit ELF file FD; its size in bytes, 0 where there is none. Believes nothing of the
 * file. */
size_t build_id_read(int fd, uint8_t build_id[BUILD_ID_MAX]);

/* The same of SIZE bytes of ELF notes, as the kernel shows them in /sys/kernel/notes. */
size_t build_id_find(const void *notes, size_t size, uint8_t build_id[BUILD_ID_MAX]);

#endif
