/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the GNU build id note of ELF files. Any thread. */
#ifndef KVMSCOPE_GUEST_AGENT_MAPPED_BUILD_ID_H
#define KVMSCOPE_GUEST_AGENT_MAPPED_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

#define BUILD_ID_MAX 20

/* Reads the build id of the 64-bit ELF file FD. Returns its size in bytes, 0 if there is none. The
 * file is untrusted. */
size_t build_id_read(int fd, uint8_t build_id[BUILD_ID_MAX]);

/* The same for SIZE bytes of ELF notes, as in /sys/kernel/notes. */
size_t build_id_find(const void *notes, size_t size, uint8_t build_id[BUILD_ID_MAX]);

#endif
