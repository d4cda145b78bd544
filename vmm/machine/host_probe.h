/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capabilities of this host, determined by using them. Each probe runs in a child process with
 * a time limit, most of them in a VM of their own, so that a KVM that hangs or kills its user costs
 * one row only.
 */
#ifndef KVMSCOPE_MACHINE_HOST_PROBE_H
#define KVMSCOPE_MACHINE_HOST_PROBE_H

#include <stdbool.h>
#include <stddef.h>

enum probe_state {
	PROBE_NO,     /* it was tried and does not work */
	PROBE_PARTLY, /* works within the limits given in the detail */
	PROBE_YES,
};

#define PROBE_DETAIL_SIZE 240

/* Code in which guest debugging works: bits of probe_row.works. */
#define PROBE_IN_KERNEL 1u
#define PROBE_IN_USER   2u

struct probe_row {
	const char *id;    /* stable, for programs, such as "debug.watchpoint" */
	const char *name;  /* for people */
	const char *lost;  /* a sentence: what is unavailable if the row is not PROBE_YES */
	const char *takes; /* the rights that it needs; may be NULL */
	bool for_linux;    /* Linux guests need it */
	bool untried;      /* PROBE_NO because it needs a VM and the first row says that none can be
			      created */
	enum probe_state state;
	char detail[PROBE_DETAIL_SIZE]; /* the measurement, or why it failed */
	unsigned int works;             /* debug probes only: PROBE_IN_KERNEL, PROBE_IN_USER */
};

/*
 * Runs all probes in sequence, except for those in a VM if the first probe cannot create one. Takes
 * about a second if nothing hangs. *ROWS has *COUNT rows in report order; the caller frees it with
 * probe_free(). -ENOMEM. Forks: the process must not have other threads.
 */
int probe_all(struct probe_row **rows, size_t *count);
/* Runs the probe ID, which must exist. -ENOMEM. Forks: the process must not have other threads. */
int probe_one(const char *id, struct probe_row *row);
/* NULL is a no-op. */
void probe_free(struct probe_row *rows, size_t count);

/* True if each row that Linux needs is PROBE_YES or PROBE_PARTLY. */
bool probe_can_boot_linux(const struct probe_row *rows, size_t count);

#endif
