/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recordings of all domains: below one directory a directory for each domain, and in it
 *perf.data files one after the other, the oldest of which go when they are too old, too many, or
 *the file system has no room (docs/continuous-profiling.md).
 *
 *	DIRECTORY/web-1/domain                                the domain's name, byte by byte
 *	DIRECTORY/web-1/20261122T105600.123Z.perf.data.partial    is being written
 *	DIRECTORY/web-1/20261122T105545.120Z.perf.data.new        is complete, and waits to be
 *handed on DIRECTORY/web-1/20261122T105530.118Z.perf.data            is complete
 *	DIRECTORY/web-1/names/                                    a build-id cache: see
 *recording_symbols()
 *
 * A file is renamed from one to the next. What a daemon that was killed has left as .partial is a
 *whole file up to the last quarter of a second (docs/perf-data.md): it is taken over at the next
 *start.
 *
 * Never the host: a reserve of the file system is left free. Where it is not, the oldest files of
 *any domain go, and if there are none the files that are being written: their recording goes on in
 *its next file. Each is counted and said.
 *
 *	recordings_open() -> recordings_add() for each domain, any time
 *	-> recordings_remove() -> recordings_close()
 *
 * Any thread, as each function takes a lock that is never held while something is written to a
 *recording.
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
	const char *directory; /* made, with mode 0700, if it is not there */
	uint64_t max_size; /* bytes of one domain's complete files, and its names; 0: no limit */
	uint64_t max_age;  /* s since a file was begun; 0: no limit */
	uint64_t rotate;   /* s that a file is of, at least 1 */
	uint64_t reserve;  /* bytes of the file system that are left free */
	bool hand_on;      /* complete files wait for recordings_next() */
};

/* None goes backwards but files, bytes and names. */
struct recordings_statistics {
	uint64_t files, bytes; /* that are complete now, of all domains */
	uint64_t removed;      /* complete files that went by their size or age */
	uint64_t sacrificed;   /* complete files that went for want of room */
	uint64_t dropped; /* files that could not be written to their end, their samples are gone */
	uint64_t taken_over;    /* that a former daemon had left unfinished */
	uint64_t not_handed_on; /* of those removed and sacrificed, files that nobody had taken yet
				 */
	uint64_t names;         /* bytes of names, of all domains, as they were last counted */
	uint64_t names_removed; /* builds whose names went, as no recording needed them */
};

/*
 * Opens the directory and takes over what is there. It, and each domain's, has to belong to us, is
 * no symbolic link, and is open to nobody else: -EPERM, or the errors of mkdir(2) and open(2). The
 * string of OPTIONS is copied.
 */
int recordings_open(struct recordings **recordings, const struct recordings_options *options);

/* All domains were removed. Works on NULL. */
void recordings_close(struct recordings *recordings);

/*
 * DOMAIN is recorded from here on. -EBUSY: it is already; -ENOMEM, and the errors of making its
 * directory. The result is valid until recordings_remove().
 */
int recordings_add(struct recordings *recordings, const char *domain, struct recording **recording);

/* For its collector, whose path and room they give. */
const struct collector_files *recording_files(const struct recording *recording);

/*
 * Where the names of the domain's kernel and programs go: a build-id cache in its own directory, as
 * a guest may say of any build id what it likes. Nothing is written there when the reserve is not
 * free, or they are half of what the domain may have though recording_prune_symbols() was called.
 * Valid as long as RECORDING.
 */
const struct build_id_cache_location *recording_symbols(const struct recording *recording);

/*
 * Removes names that no recording of the domain needs any more, the longest unused first, if they
 * are too many: half of what the domain may have, or recordings would go for them. It then reads
 * all its recordings, at most every ten minutes: not on the collector's thread. One thread.
 */
void recording_prune_symbols(struct recording *recording);

/* The domain's directory: for its other files, which are neither counted nor removed. The room of
 * recording_files() is for them, too. */
const char *recording_directory(const struct recording *recording);

/* The path of the domain's latest file, or with a PREFIX of the latest other file whose name begins
 * so. COMPLETE: preferably of one that is not being written. -ENOENT. */
int recording_latest(const struct recording *recording, const char *prefix, bool complete,
		     char path[PATH_MAX]);

/* The collector has stopped. Its files stay. */
void recordings_remove(struct recordings *recordings, struct recording *recording);

/* Removes what became too old, and what is too much for the reserve. To be called now and then:
 * files may go at any time. */
void recordings_tidy(struct recordings *recordings);

void recordings_statistics(struct recordings *recordings, struct recordings_statistics *statistics);

/* A file that is to be handed on. */
struct recordings_file {
	char path[PATH_MAX];
	char names[PATH_MAX];                  /* the directory of its domain's names */
	char domain[RECORDING_DOMAIN_MAX + 1]; /* its name */
	uint64_t from, until;                  /* ms since 1970 */
};

/* Can be polled: readable while there are files to hand on. */
int recordings_new_fd(const struct recordings *recordings);

/* The oldest file of any domain that waits; false if none does. It may be removed at any time. One
 * thread. */
bool recordings_next(struct recordings *recordings, struct recordings_file *file);

/* It need not wait any more. */
void recordings_done(struct recordings *recordings, const struct recordings_file *file);

#endif
