/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent in an initrd boot. An archive with the agent's program, which is embedded in this
 * program, precedes the user's initrd. The kernel's command line makes the agent the first process
 * (rdinit=), and the agent starts the initrd's own init at once.
 */
#ifndef KVMSCOPE_BOOT_AGENT_INITRD_H
#define KVMSCOPE_BOOT_AGENT_INITRD_H

#include <stddef.h>
#include <stdint.h>

/* The archive, for boot_options.initrd_front. The caller frees it; NULL without memory. */
uint8_t *agent_initrd_archive(size_t *size);

/* The command line APPEND with the parameters that start the agent, placed before a "--". The
 * init that APPEND names with rdinit= runs afterwards. The caller frees it; NULL without memory. */
char *agent_initrd_command_line(const char *append);

#endif
