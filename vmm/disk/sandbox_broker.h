/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs sandboxes (sandbox.h) for a process that gives up the right to read their files: a process
 *of its own, started before that, which runs one program on some files, in its sandbox, and nothing
 *else. Of its rights it keeps those to become a file's owner. It takes no byte of what the program
 *writes for more than bytes, and ends with the thread that started it.
 *
 *	caller --file, arguments--> broker --> program in its sandbox
 *	caller <------output, or why there is none------ broker
 *
 * Any one thread at a time.
 */
#ifndef KVMSCOPE_DISK_SANDBOX_BROKER_H
#define KVMSCOPE_DISK_SANDBOX_BROKER_H

#include <stddef.h>

#include "vmm/disk/disk_probe.h"
#include "vmm/disk/sandbox.h"

#define SANDBOX_BROKER_FILES_MAX 8

struct sandbox_broker;

/*
 * Looks at FILES, COUNT of them, absolute paths, and starts the process that runs PROGRAM on those
 * that may be read now. Nothing of them stays open. PROGRAM is not copied. The errors of
 * socketpair() and fork(), with the message; -ENOMEM.
 */
int sandbox_broker_start(struct sandbox_broker **broker, const char *program,
			 const struct disk_file *files, size_t count);

/* What FILE was when it started. -EINVAL: it was not started for that; the error of disk_probe().
 */
int sandbox_broker_probe(const struct sandbox_broker *broker, const char *file,
			 struct disk_probe *look);

/*
 * As sandbox_run() of PROGRAM, FILE and ARGUMENTS (behind those two, the last NULL); of SANDBOX its
 * limits count. After -ECANCELED it runs nothing any more.
 */
int sandbox_broker_run(struct sandbox_broker *broker, const struct sandbox *sandbox,
		       const char *file, const char *const *arguments, struct bytes *output);

/* Works on NULL. */
void sandbox_broker_end(struct sandbox_broker *broker);

#endif
