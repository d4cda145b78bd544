/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One domain that is profiled: a thread with one session after the other, for as long as the domain's process
 * lives and is wanted. What can not be attached to now is tried again later: a VM that is only
 * starting, a host that is short of something. Each domain has its own thread, that one which is slow to look
 *at, or means to be, holds up no other.
 *
 *	domain_start() -> domain_stop() -> domain_free()	one thread
 *	domain_status(), domain_dump(), domain_dump_result()	any thread meanwhile
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_H
#define KVMSCOPE_DAEMON_DOMAIN_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "shared/error.h"
#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/metrics.h"
#include "vmm/daemon/recordings.h"
#include "vmm/daemon/settings.h"
#include "vmm/profile/collector.h"
#include "vmm/session/flight_requests.h"

struct domain;

struct domain_options {
	const char *name; /* copied */
	pid_t pid;
	int pid_fd; /* of that process: taken over, also by a call that fails */
	struct domain_settings settings;
	struct recordings *recordings; /* outlives it, as the metrics */
	struct metrics *metrics;
	int ended_fd; /* an eventfd that is written to when it has ended; outlives it */
};

/* Starts the thread. -ENOMEM, the errors of threads. */
int domain_start(struct domain **domain, const struct domain_options *options);

/* Has it end; comes back at once. */
void domain_stop(struct domain *domain);

/* Has its thread done its last? By itself, if its process has ended. */
bool domain_has_ended(const struct domain *domain);

/* Waits for its end if there is need. Works on NULL. */
void domain_free(struct domain *domain);

const char *domain_name(const struct domain *domain);
/* domain_name_escape() of that. */
const char *domain_shown_name(const struct domain *domain);
pid_t domain_pid(const struct domain *domain);
const struct domain_settings *domain_settings(const struct domain *domain);

enum domain_state {
	DOMAIN_ATTACHING,
	DOMAIN_SAMPLING,
	DOMAIN_WAITING, /* it could not be attached to: see message; tried again */
	DOMAIN_ENDED,
};

struct domain_status {
	enum domain_state state;
	char message[ERROR_MESSAGE_SIZE]; /* of DOMAIN_WAITING; else "" */
	const char *backend;              /* NULL: none yet */
	unsigned int vcpus;
	unsigned int flight_files;
	struct collector_statistics statistics; /* since the domain was begun with, all sessions */
};

void domain_status(struct domain *domain, struct domain_status *status);

/* "attaching", "sampling", "waiting", "ended" */
const char *domain_state_name(enum domain_state state);

/*
 * The file that is written now, or the latest: readable up to the last quarter of a second. -ENOENT: there is
 * none.
 */
int domain_latest_file(struct domain *domain, char path[PATH_MAX]);

/*
 * The flight recorder is to write what it holds: as flight_requests_ask() and flight_requests_result().
 * -ENOTSUP: it has none, or is not sampled now.
 */
int domain_dump(struct domain *domain, const char *path, uint64_t after, uint64_t *number);
int domain_dump_result(struct domain *domain, uint64_t number, struct flight_request_result *result);

#endif
