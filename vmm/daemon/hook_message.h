/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvirt's hook hands to kvmscoped: that something happened to a domain.
 *
 *	"kvmscope hook 1\0" domain "\0" operation "\0" XML
 *
 * Each message comes in a file of its own: an anonymous one (memfd_create(2)), whose descriptor is
 *sent over the socket HOOK_SOCKET with one byte (SCM_RIGHTS, unix(7)); or, where nobody takes that,
 *one in the spool HOOK_SPOOL, until kvmscoped comes. XML is the domain's, or nothing, if libvirt
 *gave more than fits; what it asks for is in libvirt's own files, too. The format is of the host
 *alone: hook and daemon are installed together.
 */
#ifndef KVMSCOPE_DAEMON_HOOK_MESSAGE_H
#define KVMSCOPE_DAEMON_HOOK_MESSAGE_H

#include <stddef.h>

#define HOOK_MAGIC "kvmscope hook 1"

/* A text in the hook's program, by which it is known to be ours, of whatever version. */
#define HOOK_MARK "kvmscope's hook for libvirt, put here by kvmscope libvirt install"

/* In the run directory, /run/kvmscope. */
#define HOOK_RUN_DIRECTORY "/run/kvmscope"
#define HOOK_SOCKET        "hook.socket"
#define HOOK_SPOOL         "hook.spool"
/* A file there that has a byte for each message that was dropped, as there were too many. */
#define HOOK_DROPPED "dropped"

#define HOOK_SPOOL_MAX  128        /* messages: the oldest go */
#define HOOK_QUEUED_MAX (64 << 10) /* bytes of one there: a longer one goes without XML */
#define HOOK_WORK_S     5 /* that a hook may take to hand one over, of which libvirt knows nothing */
#define HOOK_XML_MAX    (1 << 20) /* bytes */
#define HOOK_WORD_MAX   1024      /* bytes of domain, and of operation, with their end */
#define HOOK_SIZE_MAX   (HOOK_XML_MAX + 2 * HOOK_WORD_MAX + sizeof(HOOK_MAGIC))

/* All point into what was parsed. */
struct hook_message {
	const char *domain, *operation;
	const char *xml;
	size_t xml_size; /* 0: it has none */
};

/* SIZE bytes at TEXT, which another process wrote. -EINVAL, with the message: they are none. Any
 * thread. */
int hook_message_parse(struct hook_message *message, const char *text, size_t size);

#endif
