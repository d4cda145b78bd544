/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of a domain in libvirt's XML: <domain>, as hooks get it, or <domstatus> around
 * it, as libvirt stores running domains in RUNSTATEDIR/libvirt/qemu/NAME.xml (libvirt:
 * src/qemu/qemu_domain.c, qemuDomainObjPrivateXMLFormat()). Whoever may define domains has written
 * parts of it: its size is bounded, document types and thus entities are refused, and nothing is
 * fetched. Any thread.
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_XML_H
#define KVMSCOPE_DAEMON_DOMAIN_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shared/error.h"
#include "vmm/daemon/settings.h"

/* Namespace of the element <profile> in <metadata>. */
#define DOMAIN_XML_NAMESPACE "urn:kvmscope:profile"

#define DOMAIN_XML_MAX       (1 << 20) /* bytes; libvirt's own are some 10 KiB */
#define DOMAIN_NAME_SIZE     256       /* libvirt makes files of names, NAME.xml */
#define DOMAIN_SETTINGS_MAX  8
#define DOMAIN_SETTING_SIZE  64
#define DOMAIN_AGENT_CHANNEL "org.kvmscope.agent.0"

/* A live migration in progress. */
enum domain_migration {
	DOMAIN_STAYS,
	DOMAIN_LEAVES,  /* to another host */
	DOMAIN_ARRIVES, /* from another host: its memory is incomplete, and it does not run */
};

struct domain_xml {
	char name[DOMAIN_NAME_SIZE];
	pid_t pid;                       /* of the process, in a <domstatus>; 0: unknown */
	bool ended;                      /* its state has no process */
	enum domain_migration migration; /* in a <domstatus> */
	bool profile;                    /* its metadata has a profile */
	bool agent;                      /* it has a channel DOMAIN_AGENT_CHANNEL */
	struct {
		char key[DOMAIN_SETTING_SIZE], value[DOMAIN_SETTING_SIZE];
	} settings[DOMAIN_SETTINGS_MAX]; /* the profile's attributes, in order */
	size_t setting_count;
	char wrong[ERROR_MESSAGE_SIZE]; /* the error in the profile; "": none */
};

/* Parses SIZE bytes at TEXT. -E2BIG: more than DOMAIN_XML_MAX; -EINVAL: not such XML; with the
 * message. An invalid profile is not an error here, but in domain_xml_apply(). */
int domain_xml_read(struct domain_xml *domain, const void *text, size_t size);

/* Applies the domain's profile, which turns profiling on, to SETTINGS. Without a profile they stay
 * unchanged. The errors of settings_set(), -EINVAL for an invalid profile. */
int domain_xml_apply(const struct domain_xml *domain, struct domain_settings *settings);

#endif
