/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The complete files of one domain, the oldest first, as the recordings of all domains know them
 * (recordings_state.h, whose lock is held by who calls). Nothing here looks at the disk.
 */
#ifndef KVMSCOPE_DAEMON_RECORDED_DOMAIN_H
#define KVMSCOPE_DAEMON_RECORDED_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/recording_file.h"

/* A complete file. */
struct recorded_file {
	uint64_t time; /* ms since 1970, when it was begun: its name */
	uint64_t size; /* bytes */
	bool is_new;   /* waits to be handed on */
};

struct recorded_domain {
	struct recorded_domain *next;
	char file[DOMAIN_FILE_SIZE]; /* its directory */
	char *name;                  /* owned */
	struct recorded_file *files; /* owned; from FIRST on, the oldest first */
	size_t first, count, room;
	uint64_t bytes;  /* of all files */
	uint64_t names;  /* bytes of its names, as they were last looked at */
	uint64_t latest; /* the time of its latest file, complete or not */
	bool recorded;   /* now */
};

/* NAME's, with the directory FILE, and without files; NULL: no memory, with the message. */
struct recorded_domain *recorded_domain_create(const char *file, const char *name);
/* Not NULL. Its files stay. */
void recorded_domain_free(struct recorded_domain *domain);

/* Below COUNT; 0 is the oldest. Valid until the next change. */
struct recorded_file *recorded_file_at(const struct recorded_domain *domain, size_t index);

/* Of DOMAIN's file of TIME in STATE, below the directory of all. */
void recorded_file_path(const struct recorded_domain *domain, uint64_t time,
			enum recording_state state, char path[RECORDING_PATH_SIZE]);
enum recording_state recorded_file_state(const struct recorded_file *file);

/* Behind all others. -ENOMEM, with the message. */
int recorded_domain_append(struct recorded_domain *domain, const struct recorded_file *file);

/* There is one. */
void recorded_domain_drop_oldest(struct recorded_domain *domain);

#endif
