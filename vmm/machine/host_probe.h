/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host can do, found out by doing it: each probe runs in a child
 * process with a time limit, most of them in a throw-away VM of their own, so
 * that a KVM that hangs or kills its user costs one row and no more.
 */
#ifndef KVMSCOPE_MACHINE_HOST_PROBE_H
#define KVMSCOPE_MACHINE_HOST_PROBE_H

#include <stdbool.h>
#include <stddef.h>

enum probe_state {
	PROBE_NO,     /* tried, and it does not work */
	PROBE_PARTLY, /* works with the limits that the detail tells */
	PROBE_YES,
};

#define PROBE_DETAIL_SIZE 240

/* Where guest debugging works: bits of probe_row.works. */
#define PROBE_IN_KERNEL 1u
#define PROBE_IN_USER   2u

struct probe_row {
	const char *id;    /* stable, for programs: "debug.watchpoint" */
	const char *name;  /* for people */
	const char *lost;  /* what can not be had where the row is not PROBE_YES; a sentence */
	const char *takes; /* the rights that it takes; NULL: not told */
	bool for_linux;    /* without it no Linux guest runs */
	bool untried; /* it needs a VM, and none can be made: PROBE_NO, and the first row says why
		       */
	enum probe_state state;
	char detail[PROBE_DETAIL_SIZE]; /* what was measured or why it failed */
	unsigned int works;             /* of the debug probes: PROBE_IN_KERNEL, PROBE_IN_USER */
};

/*
 * Runs all probes, one after the other, but those in a VM where the first has
 * found that none can be made; takes about a second where nothing hangs. *ROWS
 * has *COUNT rows in the order of a report; the caller frees it
 * with probe_free(). -ENOMEM. Forks: not from a process with other threads.
 */
int probe_all(struct probe_row **rows, size_t *count);
/*
 * The probe of that ID alone, which is one of the report's: asserted. -ENOMEM.
 * Forks: those of guest debugging may be asked for beside other threads too, as
 * their children take no lock but those that fork() itself puts right (malloc's, stdio's).
 */
int probe_one(const char *id, struct probe_row *row);
/* NULL is a no-op. */
void probe_free(struct probe_row *rows, size_t count);

/* Can Linux be booted here: is each row that it needs PROBE_YES or PROBE_PARTLY? */
bool probe_can_boot_linux(const struct probe_row *rows, size_t count);

#endif
