/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state behind recordings.h:
 *
 *	recordings.c          domains, and the files and symbols that are being written
 *	recordings_catalog.c  complete files: taken over, removed, handed on
 *
 * Call these functions with the lock held, or before there are other threads.
 */
#ifndef KVMSCOPE_DAEMON_RECORDINGS_STATE_H
#define KVMSCOPE_DAEMON_RECORDINGS_STATE_H

#include <pthread.h>

#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/recording_file.h"
#include "vmm/daemon/recordings.h"

/* A complete file. */
struct recorded_file {
	uint64_t time; /* ms since 1970, when it was begun: its name */
	uint64_t size; /* bytes */
	bool is_new;   /* waits to be handed on */
};

struct recorded_domain {
	struct recorded_domain *next;
	char file[DOMAIN_FILE_SIZE]; /* name of its directory */
	char *name;                  /* owned */
	struct recorded_file *files; /* owned; COUNT from FIRST on, the oldest first */
	size_t first, count, room;
	uint64_t bytes;   /* of all files */
	uint64_t symbols; /* bytes of its symbols, when they were counted last */
	uint64_t partial; /* bytes of the file that is being written */
	uint64_t latest;  /* time of its latest file, complete or not */
	bool recorded;    /* now */
};

struct recordings {
	struct recordings_options options;
	char *directory;                 /* owned */
	int fd;                          /* of the directory, locked */
	int new_fd;                      /* eventfd */
	pthread_mutex_t lock;            /* protects what follows, and the domains */
	struct recorded_domain *domains; /* owned */
	uint64_t freed, freed_at;        /* bytes that the file system may not show yet, ms */
	bool is_short;                   /* of space; logged */
	uint64_t logged_at;              /* ms, that files were removed */
	struct recordings_statistics statistics;
};

/* NULL: there is none. */
struct recorded_domain *recordings_find(const struct recordings *all, const char *name);

/* Adds the domain NAME with the directory FILE. NULL: no memory, with the message. */
struct recorded_domain *recordings_new_domain(struct recordings *all, const char *file,
					      const char *name);
/* Its files stay on the disk. */
void recorded_domain_free(struct recorded_domain *domain);

/* The path of DOMAIN's file of TIME in STATE, below the directory of all. */
void recorded_file_path(const struct recorded_domain *domain, uint64_t time,
			enum recording_state state, char path[RECORDING_PATH_SIZE]);

/* The partial file of TIME is complete: renames and adds it. -ENOMEM, the errors of rename(2). */
int recordings_complete(struct recordings *all, struct recorded_domain *domain, uint64_t time);

/* Removes the files of DOMAIN that are too old, or too many. */
void recordings_keep_limits(struct recordings *all, struct recorded_domain *domain);

/* Bytes that the file system has left; UINT64_MAX: unknown. */
uint64_t recordings_free_space(const struct recordings *all);

/* Bytes that are missing for SIZE bytes besides the reserve. */
uint64_t recordings_missing(struct recordings *all, uint64_t size);

/*
 * Removes files until there is space for SIZE bytes of WRITER besides the reserve; with FULL until
 * SIZE bytes are removed, whatever space the file system reports. The oldest files of WRITER go
 * first, so that it does not grow at the cost of others; while it uses less than its part of the
 * space of all, those of the domain that uses the most. -ENOSPC with the message, also if WRITER
 * itself uses the most space and has no complete file. WRITER may be NULL.
 */
int recordings_make_room(struct recordings *all, struct recorded_domain *writer, uint64_t size,
			 bool full);

/* Adds the files in the directory. -ENOMEM, the errors of reading it and of rename(2). */
int recordings_take_over(struct recordings *all);

#endif
