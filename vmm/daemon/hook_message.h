/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of libvirt's hook to kvmscoped: something happened to a domain.
 *
 *	"kvmscope hook 1\0" domain "\0" operation "\0" XML
 *
 * Each message is a file: an anonymous one (memfd_create(2)), whose descriptor is sent with one
 * byte to the socket HOOK_SOCKET (SCM_RIGHTS, unix(7)); or, if that fails, one in the spool
 * HOOK_SPOOL for a later kvmscoped. XML is the domain's, or empty if libvirt provided too much;
 * libvirt's own files have the same content. The format need not be stable: hook and daemon are
 * installed together.
 */
#ifndef KVMSCOPE_DAEMON_HOOK_MESSAGE_H
#define KVMSCOPE_DAEMON_HOOK_MESSAGE_H

#include <stddef.h>

#define HOOK_MAGIC "kvmscope hook 1"

/* A text in the hook's program that identifies it as kvmscope's, of any version. */
#define HOOK_MARK "kvmscope's hook for libvirt, put here by kvmscope libvirt install"

/* In the run directory, /run/kvmscope. */
#define HOOK_RUN_DIRECTORY "/run/kvmscope"
#define HOOK_SOCKET        "hook.socket"
#define HOOK_SPOOL         "hook.spool"
/* A file in the spool with one byte for each message that was dropped because it was full. */
#define HOOK_DROPPED "dropped"

#define HOOK_SPOOL_MAX 128 /* messages; the oldest are dropped */
#define HOOK_QUEUED_MAX                                                                            \
	(64 << 10)      /* bytes of a spooled message; a longer one is stored without XML */
#define HOOK_WORK_S   5 /* that a hook may take in the background, while libvirt does not wait */
#define HOOK_XML_MAX  (1 << 20) /* bytes */
#define HOOK_WORD_MAX 1024      /* bytes of domain and of operation, with their NUL */
#define HOOK_SIZE_MAX (HOOK_XML_MAX + 2 * HOOK_WORD_MAX + sizeof(HOOK_MAGIC))

/* All pointers are into the parsed text. */
struct hook_message {
	const char *domain, *operation;
	const char *xml;
	size_t xml_size; /* 0: none */
};

/* Parses SIZE bytes at TEXT, which another process wrote. -EINVAL with the message. Any thread. */
int hook_message_parse(struct hook_message *message, const char *text, size_t size);

#endif
