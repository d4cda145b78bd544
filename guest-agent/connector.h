/* SPDX-License-Identifier: Apache-2.0 */
/* The netlink process connector (CONFIG_PROC_EVENTS, include/uapi/linux/cn_proc.h): reports fork,
 * exec, comm and exit where the guest's kernel does not allow perf events. It does not report
 * mappings: these are read from /proc several times after a process starts, and are known from then
 * on.
 */
#ifndef KVMSCOPE_GUEST_AGENT_CONNECTOR_H
#define KVMSCOPE_GUEST_AGENT_CONNECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Most processes whose mappings have to be read: those started in the last half second. */
#define CONNECTOR_DUE_MAX 512

struct connector_due {
	pid_t pid;
	unsigned int scans; /* made so far */
	uint64_t time;      /* ms, of the next scan */
};

struct connector {
	int fd;          /* owned; -1: it is closed */
	uint64_t latest; /* ns: time of the latest record */
	uint64_t missed; /* processes that exited before their first scan */
	struct connector_due due[CONNECTOR_DUE_MAX];
	unsigned int due_count;
	bool overflowed; /* due[] was full; cleared by the owner */
};

/* Result of connector_next(). */
enum connector_result {
	CONNECTOR_NOTHING, /* no event is queued */
	CONNECTOR_RECORD,
	CONNECTOR_OTHER, /* an event without a record */
	CONNECTOR_LOST,  /* an unknown number of events was dropped */
};

/* Bytes of the largest record. */
#define CONNECTOR_RECORD_MAX 64u

/* 0, or a negative errno if the kernel lacks the connector or denies it. */
int connector_open(struct connector *connector);
/* A no-op if it is not open. */
void connector_close(struct connector *connector);

/* Writes the next event to TO as a perf record (struct agent_events) of *SIZE bytes, at most
 * CONNECTOR_RECORD_MAX; *PID gets its process. */
enum connector_result connector_next(struct connector *connector, uint8_t *to, size_t *size,
				     pid_t *pid);

/* The next process to scan at NOW (clock_raw_ms()), or 0. Each process is due several times until
 * it exits.
 */
pid_t connector_due(struct connector *connector, uint64_t now);

#endif
