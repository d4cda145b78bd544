/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All domains that are profiled. What is looked at is always how a domain stands now, whatever the
 *event said: so events may come late, twice, in another order, or not at all, and the next look
 *puts it right.
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
	const struct conf *conf; /* outlives the domains, as all that is pointed to */
	struct recordings *recordings;
	struct metrics *metrics;
	const char *directory; /* libvirt's: libvirt_directory.h */
	const char *uri;       /* libvirt's, as domain_profile_options have it */
};

/* -ENOMEM, the errors of eventfd(). */
int domains_create(struct domains **domains, const struct domains_options *options);

/* Ends them all, and waits for it. Works on NULL. */
void domains_destroy(struct domains *domains);

/* Something has happened to NAME. XML: libvirt's hook gave it; NULL: it did not, and its status is
 * read. */
void domains_look(struct domains *domains, const char *name, const struct domain_xml *xml);

/* Looks at all that run. The errors of libvirt_directory_each(): nothing is changed then. */
int domains_scan(struct domains *domains);

/* Can be polled: readable when domains_reap() has something to do. */
int domains_fd(const struct domains *domains);
void domains_reap(struct domains *domains);

/* The configuration from here on. To be followed by domains_scan(). */
void domains_set_conf(struct domains *domains, const struct conf *conf);

/* USE gets each, or the one of NAME or its shown name, and may not keep it. -ENOENT: there is none
 * of that name; -ENODATA: one runs, but is not profiled, or not yet; both with the message. Else
 * what USE gives back, for the one. */
void domains_each(struct domains *domains,
		  void (*use)(void *context, struct domain_profile *domain), void *context);
int domains_find(struct domains *domains, const char *name,
		 int (*use)(void *context, struct domain_profile *domain), void *context);

#endif
