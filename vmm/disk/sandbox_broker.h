/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs sandboxes (sandbox.h) for a process that gives up the right to read their files. The broker
 * is a process started before that. It runs one program on a fixed set of files, keeps only the
 * rights to become their owners, does not interpret the program's output, and ends with the thread
 * that started it. One thread at a time.
 *
 *	caller --file, arguments--> broker --> program in its sandbox
 *	caller <---output or error--------- broker
 */
#ifndef KVMSCOPE_DISK_SANDBOX_BROKER_H
#define KVMSCOPE_DISK_SANDBOX_BROKER_H

#include <stddef.h>

#include "vmm/disk/sandbox.h"

#define SANDBOX_BROKER_FILES_MAX 8

#define DISK_PROBE_START 8

/* A disk's file. Its path may lead elsewhere by now; device and inode identify the file. */
struct disk_file {
	const char *path;
	dev_t device;
	ino_t inode; /* 0: any file at PATH */
};

struct disk_probe {
	uid_t uid; /* the owner */
	gid_t gid;
	char start[DISK_PROBE_START]; /* first bytes, which identify the image format */
	size_t size;                  /* of START; less in a shorter file */
};

/*
 * Fills PROBE; keeps nothing open. The file is opened only after it was identified, and only if it
 * is a regular file or a block device: opening another device may start it. -ENOTBLK: it is
 * neither; -ESTALE: it is another file; the errors of open().
 */
int disk_probe(const struct disk_file *file, struct disk_probe *probe);

struct sandbox_broker;

/*
 * Probes the COUNT FILES, absolute paths, and starts the process that runs PROGRAM (not copied) on
 * those that may be read. No file stays open. The errors of socketpair() and fork(), with messages;
 * -ENOMEM.
 */
int sandbox_broker_start(struct sandbox_broker **broker, const char *program,
			 const struct disk_file *files, size_t count);

/* The probe of FILE at the start. -EINVAL: not one of the files; the error of disk_probe(). */
int sandbox_broker_probe(const struct sandbox_broker *broker, const char *file,
			 struct disk_probe *probe);

/*
 * As sandbox_run() of PROGRAM with FILE and the further ARGUMENTS up to NULL; only the limits of
 * SANDBOX apply. After -ECANCELED the broker runs nothing more.
 */
int sandbox_broker_run(struct sandbox_broker *broker, const struct sandbox *sandbox,
		       const char *file, const char *const *arguments, struct bytes *output);

/* The descriptor by which it is reached, to be kept open; -1: BROKER is NULL, or was cancelled. */
int sandbox_broker_fd(const struct sandbox_broker *broker);

/* Frees BROKER without a signal to its process, which a sandbox may forbid: the process ends after
 * its request, or with this one. NULL is a no-op. */
void sandbox_broker_leave(struct sandbox_broker *broker);

void sandbox_broker_end(struct sandbox_broker *broker); /* NULL is a no-op */

#endif
