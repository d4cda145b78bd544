/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All profiled domains. Each update reads the present state of a domain, whatever the event was. So
 * events may be late, repeated, reordered or missing, and the next scan corrects the result.
 *
 *	domains_each(), domains_find()	any thread
 *	everything else			the main thread
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_SET_H
#define KVMSCOPE_DAEMON_DOMAIN_SET_H

#include "vmm/daemon/conf.h"
#include "vmm/daemon/domain_profile.h"
#include "vmm/daemon/recordings.h"

#define DOMAINS_MAX 1024

struct domains;

struct domains_options {
	const struct conf *conf; /* must outlive the domains, as all pointers */
	struct recordings *recordings;
	struct metrics *metrics;
	const char *directory; /* of libvirt: libvirt_directory.h */
	const char *uri;       /* of libvirt, as in domain_profile_options */
};

/* -ENOMEM, the errors of eventfd(). */
int domains_create(struct domains **domains, const struct domains_options *options);

/* Stops all profiles and waits. NULL is a no-op. */
void domains_destroy(struct domains *domains);

/* An event of domain NAME. XML is from libvirt's hook; NULL: the status file is read. */
void domains_update(struct domains *domains, const char *name, const struct domain_xml *xml);

/* Updates all running domains. The errors of libvirt_directory_each(): nothing changes then. */
int domains_scan(struct domains *domains);

/* For poll(): readable when domains_reap() has work to do. */
int domains_fd(const struct domains *domains);
void domains_reap(struct domains *domains);

/* Sets the configuration; call domains_scan() afterwards. */
void domains_set_conf(struct domains *domains, const struct conf *conf);

/*
 * Calls USE for each domain, or for the one with this NAME or printable name; it must not keep the
 * pointer. -ENOENT: no such domain runs; -ENODATA: it runs, but is not profiled, or not yet; both
 * with the message. Else the result of USE.
 */
void domains_each(struct domains *domains,
		  void (*use)(void *context, struct domain_profile *domain), void *context);
int domains_find(struct domains *domains, const char *name,
		 int (*use)(void *context, struct domain_profile *domain), void *context);

#endif
