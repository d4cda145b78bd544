/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvirt says of a domain, read from XML: as hooks are given it (<domain>), or as libvirt
 * keeps it of domains that run (<domstatus> around it, RUNSTATEDIR/libvirt/qemu/NAME.xml; libvirt:
 * src/qemu/qemu_domain.c, qemuDomainObjPrivateXMLFormat()). Anybody with the right to define
 * domains has written parts of it: it is bounded, has no document type and thus no entities, and
 * nothing is fetched. Any thread.
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_XML_H
#define KVMSCOPE_DAEMON_DOMAIN_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "shared/error.h"
#include "vmm/daemon/settings.h"

/* Of the element <profile> in <metadata>. */
#define DOMAIN_XML_NAMESPACE "urn:kvmscope:profile"

#define DOMAIN_XML_MAX       (1 << 20) /* bytes; libvirt's own are some 10 KiB */
#define DOMAIN_NAME_SIZE     256       /* libvirt makes files of names, NAME.xml */
#define DOMAIN_SETTINGS_MAX  8
#define DOMAIN_SETTING_SIZE  64
#define DOMAIN_AGENT_CHANNEL "org.kvmscope.agent.0"

/* Of a live migration that goes on. */
enum domain_migration {
	DOMAIN_STAYS,
	DOMAIN_LEAVES,  /* for another host */
	DOMAIN_ARRIVES, /* from there: its memory is not complete, and it does not run */
};

struct domain_xml {
	char name[DOMAIN_NAME_SIZE];
	pid_t pid;  /* of the domain's process, in a <domstatus>; 0: not told */
	bool ended; /* its state is one without a process */
	enum domain_migration migration; /* in a <domstatus> */
	bool profile;                    /* its metadata has a profile */
	bool agent;                      /* it has a channel DOMAIN_AGENT_CHANNEL */
	struct {
		char key[DOMAIN_SETTING_SIZE], value[DOMAIN_SETTING_SIZE];
	} settings[DOMAIN_SETTINGS_MAX]; /* the profile's attributes, in their order */
	size_t setting_count;
	char wrong[ERROR_MESSAGE_SIZE]; /* what is wrong with the profile; "": nothing is */
};

/* Reads SIZE bytes at TEXT. -E2BIG: they are more than DOMAIN_XML_MAX; -EINVAL: it is no such XML;
 * with the message. A profile that can not be taken is no error here, but one of
 * domain_xml_apply(). */
int domain_xml_read(struct domain_xml *domain, const void *text, size_t size);

/* Has SETTINGS say what the domain's profile says, which turns it on; the errors of settings_set(),
 * -EINVAL for a profile that could not be read. No profile: it stays as it is. */
int domain_xml_apply(const struct domain_xml *domain, struct domain_settings *settings);

#endif
