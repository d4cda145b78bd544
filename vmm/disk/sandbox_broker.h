/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs sandboxes (sandbox.h) for a process that gives up the right to read their files. The broker
 *is a process started before that. It runs one program on a fixed set of files, keeps only the
 *rights to become their owners, does not interpret the program's output, and ends with the thread
 *that started it. One thread at a time.
 *
 *	caller --file, arguments--> broker --> program in its sandbox
 *	caller <---output or error--------- broker
 */
#ifndef KVMSCOPE_DISK_SANDBOX_BROKER_H
#define KVMSCOPE_DISK_SANDBOX_BROKER_H

#include <stddef.h>

#include "vmm/disk/disk_probe.h"
#include "vmm/disk/sandbox.h"

#define SANDBOX_BROKER_FILES_MAX 8

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

void sandbox_broker_end(struct sandbox_broker *broker); /* NULL is a no-op */

#endif
