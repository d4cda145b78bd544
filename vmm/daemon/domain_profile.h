/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One domain that is profiled: a thread with one session after the other, for as long as the
 *domain's process lives and is wanted. What can not be attached to now is tried again later: a VM
 *that is only starting, a host that is short of something. Each domain has its own thread, that one
 *which is slow to look at, or means to be, holds up no other.
 *
 *	domain_profile_start() -> domain_profile_stop() -> domain_profile_free()	one thread
 *	domain_profile_status(), domain_profile_dump(), domain_profile_dump_result()	any thread
 *meanwhile
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_PROFILE_H
#define KVMSCOPE_DAEMON_DOMAIN_PROFILE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "shared/error.h"
#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/metrics.h"
#include "vmm/daemon/recordings.h"
#include "vmm/daemon/settings.h"
#include "vmm/record/collector.h"
#include "vmm/session/flight_requests.h"

struct domain_profile;

struct domain_profile_options {
	const char *name; /* copied */
	const char *uri;  /* of libvirt, for what only its monitors can tell; outlives it */
	pid_t pid;
	int pid_fd; /* of that process: taken over, also by a call that fails */
	struct domain_settings settings;
	struct recordings *recordings; /* outlives it, as the metrics */
	struct metrics *metrics;
	int ended_fd; /* an eventfd that is written to when it has ended; outlives it */
};

/* Starts the thread. -ENOMEM, the errors of threads. */
int domain_profile_start(struct domain_profile **domain,
			 const struct domain_profile_options *options);

/* Has it end; comes back at once. */
void domain_profile_stop(struct domain_profile *domain);

/* It is being moved to another host, or not any more: its end is one of a process then, and not of
 * the domain. */
void domain_profile_set_leaving(struct domain_profile *domain, bool leaving);
bool domain_profile_is_leaving(const struct domain_profile *domain);

/* Has its thread done its last? By itself, if its process has ended. */
bool domain_profile_has_ended(const struct domain_profile *domain);

/* Waits for its end if there is need. Works on NULL. */
void domain_profile_free(struct domain_profile *domain);

const char *domain_profile_name(const struct domain_profile *domain);
/* domain_name_escape() of that. */
const char *domain_profile_shown_name(const struct domain_profile *domain);
pid_t domain_profile_pid(const struct domain_profile *domain);
const struct domain_settings *domain_profile_settings(const struct domain_profile *domain);

enum domain_profile_state {
	DOMAIN_ATTACHING,
	DOMAIN_SAMPLING,
	DOMAIN_WAITING, /* it could not be attached to: see message; tried again */
	DOMAIN_ENDED,
};

struct domain_profile_status {
	enum domain_profile_state state;
	char message[ERROR_MESSAGE_SIZE]; /* of DOMAIN_WAITING; else "" */
	const char *backend;              /* NULL: none yet */
	const char *agent; /* session_agent_word(); NULL: there is no channel for it */
	unsigned int vcpus;
	unsigned int flight_files;
	struct collector_statistics statistics; /* since the domain was begun with, all sessions */
};

void domain_profile_status(struct domain_profile *domain, struct domain_profile_status *status);

/* "attaching", "sampling", "waiting", "ended" */
const char *domain_profile_state_name(enum domain_profile_state state);

/*
 * The file that is written now, or the latest: readable up to the last quarter of a second. While
 * that has no samples yet, the one before it. With a flight recorder the latest that it wrote.
 * -ENOENT: there is none; -ENOTSUP: the domain is not sampled now.
 */
int domain_profile_latest_file(struct domain_profile *domain, char path[PATH_MAX]);

/*
 * The flight recorder is to write what it holds: as flight_requests_ask() and
 * flight_requests_result(). -ENOTSUP: it has none, or is not sampled now.
 */
int domain_profile_dump(struct domain_profile *domain, const char *path, uint64_t after,
			uint64_t *number);
int domain_profile_dump_result(struct domain_profile *domain, uint64_t number,
			       struct flight_request_result *result);

#endif
