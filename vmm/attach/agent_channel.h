/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the guest agent of somebody else's VM: the UNIX socket at which its QEMU gives the
 *virtio port org.kvmscope.agent.0 to one client at a time. It is found in QEMU's command line, as
 *libvirt writes it for
 *
 *	<channel type='unix'><target type='virtio' name='org.kvmscope.agent.0'/></channel>
 *
 *	-chardev socket,id=ID,fd=N,server=on -device
 *	{"driver":"virtserialport","chardev":"ID","name":"org.kvmscope..."}
 *
 * and as people do: -chardev socket,id=ID,path=PATH,server=on -device
 *virtserialport,chardev=ID,name=... Anybody may have written either: who is talked with is the
 *process itself, or nobody (SO_PEERCRED, unix(7)). Any thread.
 */
#ifndef KVMSCOPE_ATTACH_AGENT_CHANNEL_H
#define KVMSCOPE_ATTACH_AGENT_CHANNEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/process.h"

/* Is PROCESS, by its command line, a QEMU with such a channel? */
bool agent_channel_exists(const struct vmm_process *process);

/*
 * Connects, without waiting: to the socket PATH, or with NULL to the one that PROCESS gives the
 * channel. The descriptor, non-blocking. -ENOENT: it has no such channel, or no socket for it;
 * -EBUSY: somebody else is connected; -EPERM: another process listens there; and the errors of
 * connect(2).
 */
int agent_channel_connect(const struct vmm_process *process, const char *path);

#define AGENT_CHANNEL_PATH (PATH_MAX + 32)

/*
 * The PATH of the channel's socket that holds for us, through /proc/PID/root or /proc/PID/cwd, as
 * long as the process lives. False: PROCESS has no such channel, or its socket was given to it as a
 * descriptor and has no name that is found. Any thread.
 */
bool agent_channel_path(const struct vmm_process *process, char path[AGENT_CHANNEL_PATH]);

/* Where QEMU has the channel, as its command line says. */
struct agent_channel_address {
	char path[PATH_MAX]; /* as QEMU sees it; "": it was given a descriptor */
	int fd;              /* then */
};

/* In COMMAND_LINE of SIZE bytes, words that end with NUL. False: it has none that can be connected
 * to. */
bool agent_channel_parse(const char *command_line, size_t size,
			 struct agent_channel_address *place);

/* A socket with a name, as a line of /proc/PID/net/unix tells it (net/unix/af_unix.c,
 * unix_seq_show()). */
struct agent_channel_socket {
	uint64_t inode; /* 0: it waits to be accepted */
	bool listens, connected;
	const char *path; /* in the line, which is cut at its end */
};

/* What LINE tells, which is that file's and is written to. False: it is of no socket with a name in
 * the file system. */
bool agent_channel_parse_socket(char *line, struct agent_channel_socket *socket);

#endif
