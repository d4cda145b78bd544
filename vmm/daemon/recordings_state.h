/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recordings.h keeps, for the files that it is made of:
 *
 *	recordings.c            domains, what is being written, and their names
 *	recordings_room.c       what goes: by limits, and for the reserve
 *	recordings_take_over.c  what a former daemon left
 *	recordings_hand_on.c    what waits for who takes it
 *
 * The functions here are called with the lock held, or before there is another thread.
 */
#ifndef KVMSCOPE_DAEMON_RECORDINGS_STATE_H
#define KVMSCOPE_DAEMON_RECORDINGS_STATE_H

#include <pthread.h>

#include "vmm/daemon/recorded_domain.h"
#include "vmm/daemon/recordings.h"

struct recordings {
	struct recordings_options options;
	char *directory;                 /* owned */
	int fd;                          /* of the directory, locked */
	int new_fd;                      /* eventfd */
	pthread_mutex_t lock;            /* of all that follows, and of the domains */
	struct recorded_domain *domains; /* owned */
	uint64_t freed, freed_at;        /* bytes that may not show yet, ms */
	bool is_short;                   /* of room; said */
	uint64_t said_at;                /* ms, that something went */
	struct recordings_statistics statistics;
};

/* NULL: there is none. */
struct recorded_domain *recordings_find(const struct recordings *all, const char *name);

/* Another one, see recorded_domain_create(). */
struct recorded_domain *recordings_new_domain(struct recordings *all, const char *file,
					      const char *name);

/* Removes the files of DOMAIN that are too old, or too many. */
void recordings_keep_limits(struct recordings *all, struct recorded_domain *domain);

/* Bytes that are missing where SIZE more are wanted besides the reserve. */
uint64_t recordings_missing(struct recordings *all, uint64_t size);

/*
 * For SIZE bytes besides the reserve the oldest files of any domain go; with FULL, as many as have
 * SIZE, whatever the file system says of its room. -ENOSPC: there are not so many, with the
 * message.
 */
int recordings_make_room(struct recordings *all, uint64_t size, bool full);

/* Takes over what lies in the directory. -ENOMEM, and the errors of reading it and of rename(2). */
int recordings_take_over(struct recordings *all);

#endif
