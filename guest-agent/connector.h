/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The netlink process connector (CONFIG_PROC_EVENTS, include/uapi/linux/cn_proc.h): the guest's
 * kernel tells of fork, exec, names and exits, where it does not allow perf events. What processes
 * have mapped it does not tell: that is looked up in /proc some times after they began, and is
 * known from then on.
 */
#ifndef KVMSCOPE_GUEST_AGENT_CONNECTOR_H
#define KVMSCOPE_GUEST_AGENT_CONNECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Processes that wait for /proc to be read: those that began in the last half second. */
#define CONNECTOR_DUE_MAX 512

struct connector_due {
	pid_t pid;
	unsigned int looks; /* that were taken */
	uint64_t time;      /* ms, of the next */
};

struct connector {
	int fd;          /* owned; -1: it is closed */
	uint64_t latest; /* ns: time of the latest record */
	uint64_t missed; /* processes that were over before they were looked at */
	struct connector_due due[CONNECTOR_DUE_MAX];
	unsigned int due_count;
	bool crowded; /* one more had no room there; the owner makes it false */
};

/* What was told; the record is written as perf would (struct agent_events). */
enum connector_result {
	CONNECTOR_NOTHING, /* no more for now */
	CONNECTOR_RECORD,
	CONNECTOR_OTHER, /* something that is not told on */
	CONNECTOR_LOST,  /* an unknown number of events was dropped */
};

/* Bytes of the largest record. */
#define CONNECTOR_RECORD_MAX 64u

/* Negative errno: the guest's kernel has none, or does not allow it. */
int connector_open(struct connector *connector);
/* A no-op where it is not open. */
void connector_close(struct connector *connector);

/* The next event, as a record of *SIZE bytes (CONNECTOR_RECORD_MAX at most) at TO; *PID is whose it
 * is. */
enum connector_result connector_next(struct connector *connector, uint8_t *to, size_t *size,
				     pid_t *pid);

/*
 * A process that is to be looked at now, or 0. It comes again some times, unless it ends. NOW is ms
 * of clock_raw_ms().
 */
pid_t connector_due(struct connector *connector, uint64_t now);

#endif
