/* SPDX-License-Identifier: Apache-2.0 */
/* When a file was made: statx(2), for which musl has no function. */
#ifndef KVMSCOPE_GUEST_AGENT_FILE_BIRTH_H
#define KVMSCOPE_GUEST_AGENT_FILE_BIRTH_H

#include <stdbool.h>
#include <stdint.h>

/* In ns of CLOCK_REALTIME as it was then. False: the file system does not say (tmpfs before
 * Linux 6.0). */
bool file_birth(int fd, uint64_t *time);

#endif
