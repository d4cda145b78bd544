/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recordings of all domains: a directory with a directory for each domain, which contains a
 * sequence of perf.data files. The oldest are removed when they are too old, too many, or the file
 * system has no space (docs/continuous-profiling.md).
 *
 *	DIRECTORY/web-1/domain                                    the domain's name, byte by byte
 *	DIRECTORY/web-1/20261122T105600.123Z.perf.data.partial    is being written
 *	DIRECTORY/web-1/20261122T105545.120Z.perf.data.new        complete, waits to be handed on
 *	DIRECTORY/web-1/20261122T105530.118Z.perf.data            complete
 *	DIRECTORY/web-1/names/                                    a build-id cache with symbols
 *
 * A file is renamed from one state to the next. A .partial file of a daemon that was killed is
 * valid up to the last quarter of a second (docs/perf-data.md) and is taken over at the next start.
 *
 * A reserve of the file system stays free: the oldest files of the domain that writes are removed,
 * or of the one that uses the most space if that which writes has less than its part. If the
 * largest is the one that writes, and has no complete file, the file that is being written is
 * removed, and the recording continues in the next file. Both are counted and logged.
 *
 *	recordings_open() -> recordings_add() for each domain, any time
 *			  -> recordings_remove() -> recordings_close()
 *
 * Any thread: each function takes a lock, which is never held while a recording is written.
 */
#ifndef KVMSCOPE_DAEMON_RECORDINGS_H
#define KVMSCOPE_DAEMON_RECORDINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/daemon/recording_file.h"
#include "vmm/record/collector.h"
#include "vmm/symbols/build_id_cache.h"

struct recordings; /* of all domains */
struct recording;  /* of one that is recorded now */

struct recordings_options {
	const char *directory; /* created with mode 0700 if it is missing */
	uint64_t max_size;     /* bytes of one domain's complete files and symbols; 0: no limit */
	uint64_t max_age;      /* s since a file was begun; 0: no limit */
	uint64_t rotate;       /* s that a file covers, at least 1 */
	uint64_t reserve;      /* bytes of the file system that stay free */
	bool hand_on;          /* complete files wait for recordings_next() */
};

/* Counters, except files, bytes, free, reserve and symbols, which are current values. */
struct recordings_statistics {
	uint64_t files, bytes;    /* complete now, of all domains */
	uint64_t free, reserve;   /* bytes that the file system has left (UINT64_MAX: unknown), and
				     that it is to keep */
	uint64_t removed;         /* complete files removed for their size or age */
	uint64_t sacrificed;      /* complete files removed for lack of space */
	uint64_t dropped;         /* files that could not be completed: their samples are lost */
	uint64_t taken_over;      /* partial files of an earlier daemon */
	uint64_t not_handed_on;   /* removed and sacrificed files that had not been handed on */
	uint64_t symbols;         /* bytes of symbols of all domains, when they were counted last */
	uint64_t symbols_removed; /* builds whose symbols were removed because no recording needed
				   them */
};

/*
 * Opens the directory and takes over what it contains. It and each domain's must belong to us,
 * must not be a symbolic link, and are closed to other users: -EPERM, or the errors of mkdir(2)
 * and open(2). The string of OPTIONS is copied.
 */
int recordings_open(struct recordings **recordings, const struct recordings_options *options);

/* After all domains were removed. NULL is a no-op. */
void recordings_close(struct recordings *recordings);

/* Starts recording DOMAIN. -EBUSY: it is already recorded; -ENOMEM, and the errors of creating its
 * directory. The result is valid until recordings_remove(). */
int recordings_add(struct recordings *recordings, const char *domain, struct recording **recording);

/* For its collector: they provide paths and space. */
const struct collector_files *recording_files(const struct recording *recording);

/*
 * Where the symbols of the domain's kernel and images go: a build-id cache of its own, as a guest
 * can claim any build id. Nothing is written there while the reserve is not free, or while symbols
 * use half of what the domain may have even after recording_prune_symbols(). Valid as long as
 * RECORDING.
 */
const struct build_id_cache_location *recording_symbols(const struct recording *recording);

/*
 * Removes symbols that no recording of the domain needs, the longest unused first, if they use
 * half of what the domain may have, or recordings would be removed for them. Reads all its
 * recordings, at most every ten minutes: not on the collector's thread. One thread.
 */
void recording_prune_symbols(struct recording *recording);

/* The domain's directory. Other files in it are neither counted nor removed; they may use
 * recording_files()->room. */
const char *recording_directory(const struct recording *recording);

/* The path of the domain's latest file, or with a PREFIX of the latest other file whose name begins
 * so. COMPLETE: preferably of one that is not being written. -ENOENT. */
int recording_latest(const struct recording *recording, const char *prefix, bool complete,
		     char path[PATH_MAX]);

/* After the collector has stopped. The files stay. */
void recordings_remove(struct recordings *recordings, struct recording *recording);

/* Removes files that are too old, and those in the reserve. Call it regularly. */
void recordings_tidy(struct recordings *recordings);

void recordings_statistics(struct recordings *recordings, struct recordings_statistics *statistics);

/* A file to hand on. */
struct recordings_file {
	char path[PATH_MAX];
	char symbols[PATH_MAX];                /* the directory of its domain's symbols */
	char domain[RECORDING_DOMAIN_MAX + 1]; /* its name */
	uint64_t from, until;                  /* ms since 1970 */
};

/* Can be polled: readable while there are files to hand on. */
int recordings_new_fd(const struct recordings *recordings);

/* The oldest waiting file of any domain; false if there is none. It may be removed at any time.
 * One thread. */
bool recordings_next(struct recordings *recordings, struct recordings_file *file);

/* FILE was handed on. */
void recordings_done(struct recordings *recordings, const struct recordings_file *file);

#endif
