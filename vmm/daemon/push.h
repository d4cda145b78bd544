/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuous profiling: sends recordings, file by file, to a store with Grafana Pyroscope's /ingest
 * or OpenTelemetry's protocol (docs/continuous-profiling.md).
 *
 *	complete recording --pprof, a file per vCPU--> spool --HTTP POST--> store
 *
 * Each step keeps its input until the next one has it: a recording waits (recordings_next()) until
 * its profiles are in the spool, and a profile until the store has answered with 2xx. So a restart
 * of either side loses nothing that fits the spool, and a profile is sent at least once, not
 * exactly once.
 *
 * It has a thread of its own, which does not touch sessions: sampling never waits for it.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_H
#define KVMSCOPE_DAEMON_PUSH_H

#include <stdatomic.h>
#include <stdint.h>

#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/recordings.h"

struct push;

struct push_options {
	const char *url; /* "http://localhost:4040"; as of push_request_open() */
	enum push_format format;
	const char *header_file; /* file with headers, readable by the user only; read for each
				    round; NULL */
	const char *ca_file;     /* PEM file of trusted authorities for https; NULL: the system's */
	/* Directory, created with mode 0700 if it is missing; used by one process. */
	const char *spool;
	uint64_t spool_size;   /* bytes that may wait; the oldest are dropped */
	const char *host;      /* label of all profiles */
	unsigned int retry_ms; /* before the second attempt, then doubled up to 5 minutes; 0: 1 s */
	struct recordings *recordings; /* with hand_on; must outlive the push */
};

/* Counts since the start, except spooled and spooled_bytes, which are current values. */
struct push_statistics {
	uint64_t pushed, bytes; /* profiles that the store accepted */
	uint64_t failures;      /* attempts that failed */
	uint64_t refused;       /* profiles dropped because the store kept refusing them */
	uint64_t unreadable;    /* recordings that cannot be read, or not in bounded time */
	uint64_t dropped;       /* profiles dropped because the spool was full */
	uint64_t spooled, spooled_bytes; /* waiting */
};

/*
 * Starts the thread; what an earlier one left in the spool is sent first. -EINVAL: the URL is
 * invalid, or contains a password; the errors of the header file, of CA_FILE and of the spool's
 * directory. The strings of OPTIONS are copied.
 */
int push_start(struct push **push, const struct push_options *options);

/* Ends the thread and a request in progress. What waits is sent after the next start. NULL is a
 * no-op. */
void push_stop(struct push *push);

/* Any thread. */
void push_statistics(struct push *push, struct push_statistics *statistics);

#endif
