/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent in an initrd boot: the agent's program, which this program
 * carries, goes into an archive before the user's initrd, and the kernel's
 * command line makes it the first process (rdinit=), which starts the initrd's own init at once.
 */
#ifndef KVMSCOPE_BOOT_AGENT_INITRD_H
#define KVMSCOPE_BOOT_AGENT_INITRD_H

#include <stddef.h>
#include <stdint.h>

/* The archive, for boot_options.initrd_front; for the caller to free(). NULL without memory. */
uint8_t *agent_initrd_archive(size_t *size);

/*
 * The command line APPEND with what starts the agent, before a "--" in it; the
 * init that APPEND names by rdinit= is the one that runs then. For the caller to free(); NULL
 * without memory.
 */
char *agent_initrd_command_line(const char *append);

#endif
