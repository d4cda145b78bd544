/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One profiled domain: a thread that runs one session after the other until the domain's process
 * ends or the domain is stopped. Attaching is retried after failures: the VM may just be starting,
 * or the host may lack a resource for a while. Each domain has its own thread, so a VM that is slow
 * to read does not delay the others.
 *
 *	domain_profile_start() -> domain_profile_stop() -> domain_profile_free()      one thread
 *	domain_profile_status(), _latest_file(), _dump(), _dump_result(), is_leaving  any thread
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_PROFILE_H
#define KVMSCOPE_DAEMON_DOMAIN_PROFILE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "shared/error.h"
#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/metrics.h"
#include "vmm/daemon/recordings.h"
#include "vmm/daemon/settings.h"
#include "vmm/record/collector.h"
#include "vmm/session/flight_requests.h"

struct domain_profile;

struct domain_profile_options {
	const char *name; /* copied */
	/* libvirt's, for domains that only its monitors can sample; outlives it. */
	const char *uri;
	pid_t pid;
	int pid_fd; /* of that process: consumed, also by a call that fails */
	struct domain_settings settings;
	struct recordings *recordings; /* must outlive it, as the metrics */
	struct metrics *metrics;
	int ended_fd; /* an eventfd that is written when the thread ends; must outlive it */
};

/* Starts the thread. -ENOMEM, the errors of pthread_create(). */
int domain_profile_start(struct domain_profile **domain,
			 const struct domain_profile_options *options);

/* Asks the thread to end; does not wait. */
void domain_profile_stop(struct domain_profile *domain);

/* Set while the domain migrates to another host: the end of its process is then not its own end. */
void domain_profile_set_leaving(struct domain_profile *domain, bool leaving);
bool domain_profile_is_leaving(const struct domain_profile *domain);

/* True once the thread has ended, which it does by itself with the process. */
bool domain_profile_has_ended(const struct domain_profile *domain);

/* Stops it and waits. NULL is a no-op. */
void domain_profile_free(struct domain_profile *domain);

/* Constant data of a domain; valid as long as DOMAIN. */
struct domain_profile_info {
	const char *name;
	char shown[DOMAIN_FILE_SIZE]; /* domain_name_escape() of it */
	pid_t pid;
	struct domain_settings settings;
};

const struct domain_profile_info *domain_profile_info(const struct domain_profile *domain);

enum domain_profile_state {
	DOMAIN_ATTACHING,
	DOMAIN_SAMPLING,
	DOMAIN_WAITING, /* attaching failed, see message; it is retried */
	DOMAIN_ENDED,
};

struct domain_profile_status {
	enum domain_profile_state state;
	char message[ERROR_MESSAGE_SIZE]; /* of DOMAIN_WAITING; else "" */
	const char *backend;              /* NULL: none yet */
	const char *agent; /* session_agent_word(); NULL: there is no channel for one */
	unsigned int vcpus;
	unsigned int flight_files;
	struct collector_statistics statistics; /* of all sessions */
};

void domain_profile_status(struct domain_profile *domain, struct domain_profile_status *status);

/*
 * The file that is being written, or the latest: readable up to the last quarter of a second. While
 * it has no samples yet, the one before. With a flight recorder the latest that it wrote. -ENOENT:
 * there is none; -ENOTSUP: the domain is not being sampled.
 */
int domain_profile_latest_file(struct domain_profile *domain, char path[PATH_MAX]);

/* Requests a file from the flight recorder: as flight_requests_add() and flight_requests_result().
 * -ENOTSUP: it has none, or is not being sampled. */
int domain_profile_dump(struct domain_profile *domain, const char *path, uint64_t after,
			uint64_t *number);
int domain_profile_dump_result(struct domain_profile *domain, uint64_t number, json_t *result);

#endif
