/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles that wait to be sent: a directory of pprof files. Each is complete and synced before it
 * gets its name, which contains everything about it:
 *
 *	FROM-UNTIL-RATE-VCPU-REFUSED-DOMAIN.pb.gz
 *
 * FROM and UNTIL are ms since 1970 with 15 digits, RATE is in Hz, REFUSED is the number of refusals
 * by the store, DOMAIN as of domain_name_escape(). One thread, except for the counts.
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

/* How a store receives profiles. The spool's files are pprof in any case. */
enum push_format {
	PUSH_PYROSCOPE, /* a form for /ingest */
	PUSH_OTLP,      /* OpenTelemetry's protocol, over HTTP */
};

struct push_item {
	uint64_t from, until; /* ms since 1970, below 10^15 */
	uint32_t rate;        /* Hz */
	uint32_t vcpu;
	uint32_t refused;
	char domain[DOMAIN_FILE_SIZE]; /* as a file name */
};

/* The name of ITEM's file; its times are below 10^15. Any thread. */
void push_item_name(const struct push_item *item, char name[PUSH_NAME_SIZE]);

/* Parses a name of push_item_name(); false for any other. Any thread. */
bool push_item_parse(const char *name, struct push_item *item);

struct push_spool;

/*
 * Opens DIRECTORY, which is created if it is missing, for at most SIZE bytes. The errors of
 * recording_directory_open(), -EWOULDBLOCK if another process uses it, -ENOMEM; all with the
 * message.
 */
int push_spool_open(struct push_spool **spool, const char *directory, uint64_t size);
/* The profiles stay on the disk. NULL is a no-op. */
void push_spool_close(struct push_spool *spool);

/* A file for a profile, which push_spool_commit() or push_spool_abandon() closes; one at a time.
 * NULL with the message of open(2). */
FILE *push_spool_begin(struct push_spool *spool);

/* The profile is complete: it is synced and gets the name of ITEM, replacing a file of that name;
 * older ones are dropped to make room. After an error it is removed. */
int push_spool_commit(struct push_spool *spool, FILE *file, const struct push_item *item);
/* Closes and removes FILE. */
void push_spool_abandon(struct push_spool *spool, FILE *file);

/* Lists the COUNT waiting profiles, the oldest first; the caller's to free. -ENOMEM, errors of
 * reading the directory; with the message, and ITEMS is NULL. */
int push_spool_list(struct push_spool *spool, struct push_item **items, size_t *count);

/* Opens the item's profile. Returns a descriptor and its SIZE. -ENOENT: it was dropped. */
int push_spool_read(const struct push_spool *spool, const struct push_item *item, uint64_t *size);

/* Removes ITEM, which was sent or is dropped. */
void push_spool_remove(struct push_spool *spool, const struct push_item *item);

/* The store refused it once more. Returns the number of refusals. */
unsigned int push_spool_refuse(struct push_spool *spool, const struct push_item *item);

struct push_spool_counts {
	uint64_t files, bytes; /* waiting */
	uint64_t dropped;      /* files dropped to make room */
};

/* Any thread. */
void push_spool_count(struct push_spool *spool, struct push_spool_counts *counts);

#endif
