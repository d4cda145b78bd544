/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles that wait to be pushed: a directory of pprof files, each complete and on the disk before
 *it has its name, which says all that there is to say of it:
 *
 *	FROM-UNTIL-RATE-VCPU-REFUSED-DOMAIN.pb.gz
 *
 * FROM and UNTIL in ms since 1970 and 15 digits, RATE in Hz, REFUSED how often the store has,
 *DOMAIN as domain_name_escape() has it. One thread, but for the counts.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_SPOOL_H
#define KVMSCOPE_DAEMON_PUSH_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "vmm/daemon/domain_name.h"

#define PUSH_NAME_SIZE    256
#define PUSH_VCPU_UNKNOWN UINT32_MAX

struct push_item {
	uint64_t from, until; /* ms since 1970, below 10^15 */
	uint32_t rate;        /* Hz */
	uint32_t vcpu;
	uint32_t refused;
	char domain[DOMAIN_FILE_SIZE]; /* its file name */
};

/* ITEM's file in the spool; its times are below 10^15. Any thread. */
void push_item_name(const struct push_item *item, char name[PUSH_NAME_SIZE]);

/* Reads what push_item_name() writes; false for any other name. Any thread. */
bool push_item_parse(const char *name, struct push_item *item);

struct push_spool;

/* Opens DIRECTORY, which is made if it is not there, for at most SIZE bytes; for
 * push_spool_close(). The errors of recording_directory_open(), -EWOULDBLOCK where another process
 * has it, -ENOMEM; all with the message. */
int push_spool_open(struct push_spool **spool, const char *directory, uint64_t size);
/* What waits stays on the disk. NULL is a no-op. */
void push_spool_close(struct push_spool *spool);

/*
 * A file to write a profile to, which push_spool_commit() or push_spool_abandon() takes back; one
 * at a time. NULL with the message of open(2).
 */
FILE *push_spool_begin(struct push_spool *spool);

/*
 * The profile is complete: it is synced to the disk, gets the name of ITEM, and older ones make
 * room for it. Errors of writing: it is gone then. Replaces one of the same name.
 */
int push_spool_commit(struct push_spool *spool, FILE *file, const struct push_item *item);
/* There is no profile: FILE is closed, and gone. */
void push_spool_abandon(struct push_spool *spool, FILE *file);

/* What waits, COUNT items, the oldest first; to be freed by free(). -ENOMEM, errors of reading the
 * directory; with the message, and ITEMS is NULL. */
int push_spool_list(const struct push_spool *spool, struct push_item **items, size_t *count);

/* A descriptor of the item's profile and its size. -ENOENT: it went for a newer one. */
int push_spool_read(const struct push_spool *spool, const struct push_item *item, uint64_t *size);

/* The store has it, or never will. */
void push_spool_remove(struct push_spool *spool, const struct push_item *item);

/* The store has refused it once more; how often it has by now. */
unsigned int push_spool_refuse(struct push_spool *spool, const struct push_item *item);

struct push_spool_counts {
	uint64_t files, bytes; /* that wait */
	uint64_t dropped;      /* files that went to make room */
};

/* Any thread. */
void push_spool_count(struct push_spool *spool, struct push_spool_counts *counts);

#endif
