/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel to the guest agent of a VM that another program started: the UNIX socket at which
 * QEMU serves the virtio port org.kvmscope.agent.0 to one client at a time. The socket is found in
 * QEMU's command line, as libvirt or a user writes it:
 *
 *	-chardev socket,id=ID,fd=N,server=on
 *	-device {"driver":"virtserialport","chardev":"ID","name":"org.kvmscope.agent.0"}
 *
 *	-chardev socket,id=ID,path=PATH,server=on
 *	-device virtserialport,chardev=ID,name=org.kvmscope.agent.0
 *
 * The command line is not trusted: a connection is used only if its peer is the process itself
 * (SO_PEERCRED, unix(7)). Any thread.
 */
#ifndef KVMSCOPE_ATTACH_AGENT_CHANNEL_H
#define KVMSCOPE_ATTACH_AGENT_CHANNEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/process.h"

/* True if the command line of PROCESS has such a channel. */
bool agent_channel_exists(const struct vmm_process *process);

/*
 * Connects without waiting, to the socket PATH or, if PATH is NULL, to the channel of PROCESS.
 * Returns a non-blocking descriptor. -ENOENT: no such channel, or no socket for it; -EBUSY: another
 * client is connected; -EPERM: another process listens there; and the errors of connect(2).
 */
int agent_channel_connect(const struct vmm_process *process, const char *path);

#define AGENT_CHANNEL_PATH (PATH_MAX + 32)

/*
 * Stores the PATH of the channel's socket through /proc/PID/root or /proc/PID/cwd, valid during the
 * process's lifetime. False: PROCESS has no such channel, or its socket is an inherited descriptor
 * without a path. Any thread.
 */
bool agent_channel_path(const struct vmm_process *process, char path[AGENT_CHANNEL_PATH]);

/* The channel's address in QEMU's command line. */
struct agent_channel_address {
	char path[PATH_MAX]; /* as QEMU sees it; "": an inherited descriptor */
	int fd;              /* the inherited descriptor; -1: none */
};

/*
 * Parses COMMAND_LINE, SIZE bytes of NUL-terminated words. False: it has no channel to connect to.
 */
bool agent_channel_parse(const char *command_line, size_t size,
			 struct agent_channel_address *address);

/* A socket with a path: one line of /proc/PID/net/unix (net/unix/af_unix.c, unix_seq_show()). */
struct agent_channel_socket {
	uint64_t inode; /* 0: not accepted yet */
	bool listens, connected;
	const char *path; /* points into the parsed line */
};

/* Parses LINE, and modifies it. False: the socket has no path in the file system. */
bool agent_channel_parse_socket(char *line, struct agent_channel_socket *socket);

/* The guest agent over vsock (vsock(7)), for VMs with a vhost-vsock device: kvmscope-agent --vsock
 * PORT connects from the guest, and the host kernel supplies the guest's CID. Any thread. */
struct agent_vsock_address {
	unsigned int cid; /* the guest's */
	unsigned int port;
};

/* Parses "vsock:CID:PORT". False: TEXT is something else. */
bool agent_vsock_parse(const char *text, struct agent_vsock_address *address);

/*
 * Listens on ADDRESS's port, for connections of any CID. Returns a non-blocking descriptor.
 * -EADDRINUSE: the port is in use; -EAFNOSUPPORT: no vsock in this kernel; and the errors of
 * socket(2) and bind(2).
 */
int agent_vsock_listen(const struct agent_vsock_address *address);

/* Accepts the connection of ADDRESS's guest from a port below 1024; non-blocking. Connections of
 * others are closed, a limited number per call. -EAGAIN: the agent has not connected. */
int agent_vsock_accept(int listener, const struct agent_vsock_address *address);

#endif
