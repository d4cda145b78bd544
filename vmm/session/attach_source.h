/* SPDX-License-Identifier: Apache-2.0 */
/* An attachment to a running VM (vmm/attach) as the source of a session. */
#ifndef KVMSCOPE_SESSION_ATTACH_SOURCE_H
#define KVMSCOPE_SESSION_ATTACH_SOURCE_H

#include "vmm/attach/attachment.h"
#include "vmm/record/image_parser.h"
#include "vmm/session/profile_session.h"

/* ns that a sample can wait in a backend. Much longer than backends are polled, as other programs
 * need the CPUs, too. */
#define ATTACH_SOURCE_DELAY 500000000ull

/* ATTACH must outlive the session. */
struct session_source attach_source(struct attach *attach);

/* How to reach the guest agent of ATTACH's VM: at SOCKET, or with NULL where its command line says.
 * False: it has no channel for one. */
bool attach_source_agent(const struct attach *attach, const char *socket,
			 struct session_agent_options *options);

/*
 * Starts the processes that parse what the guest has in memory (image_parser.h), as the VM's user:
 * call it before the right to change the user is given up. KERNEL: path of the kernel's ELF file;
 * NULL. The caller ends them, after the session. The errors of image_parser_start().
 */
int attach_source_parser(const struct attach *attach, const char *kernel,
			 struct image_parser **parser);

#endif
