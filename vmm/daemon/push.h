/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuous profiling: what is recorded goes, a file at a time, as pprof to a store that speaks
 *Grafana Pyroscope's /ingest (docs/continuous-profiling.md).
 *
 *	recording that is complete --pprof, a file for each vCPU--> spool --HTTP POST--> store
 *
 * Each step leaves what it took only when the next one has it: a recording waits
 *(recordings_next()) until its profiles are on the disk of the spool, and a profile until the store
 *has answered with 2xx. So a restart of either side loses nothing that the spool has room for, and
 *a profile may come twice: at least once, not exactly once.
 *
 * All happens on a thread of its own, which touches nothing of a session: sampling never waits for
 *it.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_H
#define KVMSCOPE_DAEMON_PUSH_H

#include <stdint.h>

#include "vmm/daemon/recordings.h"

struct push;

struct push_options {
	const char
		*url; /* "http://localhost:4040"; "/ingest" is put behind it unless it is there */
	const char *header_file; /* headers of each request, of the user's alone; read anew each
				    time; NULL */
	const char *ca_file;     /* PEM, authorities that a store of https is believed by; NULL: the
				    system's */
	const char *spool; /* directory, made with mode 0700 if it is not there; one process' own */
	uint64_t spool_size;   /* bytes that may wait; the oldest go first */
	const char *host;      /* label of all profiles */
	unsigned int retry_ms; /* before the second attempt, then twice that, up to 5 minutes; 0: a
				  second */
	struct recordings *recordings; /* that hand on; outlives the push */
};

/* Since the start; the last two are what there is now. */
struct push_statistics {
	uint64_t pushed, bytes; /* profiles that the store has taken */
	uint64_t failures;      /* attempts after which a profile was still here */
	uint64_t refused;       /* profiles given up as the store refused them again and again */
	uint64_t dropped;       /* profiles that went for want of room in the spool */
	uint64_t spooled, spooled_bytes; /* that wait */
};

/*
 * Starts the thread; what an earlier one left in the spool is pushed first. -EINVAL: the URL is
 * none, or has a password in it; the errors of the header file, of CA_FILE and of the spool's
 * directory. The strings of OPTIONS are copied.
 */
int push_start(struct push **push, const struct push_options *options);

/* Ends the thread, a request that is going on, too. What waits is pushed after the next start.
 * Works on NULL.
 */
void push_stop(struct push *push);

/* Any thread. */
void push_statistics(struct push *push, struct push_statistics *statistics);

#endif
