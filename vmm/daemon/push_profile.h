/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a recording to the profiles that are pushed. A confined child process parses it and its
 * symbols (sandbox_work.h), and passes the profiles in a file in memory. Any thread, which it does
 * not share with other users of SPOOL. */
#ifndef KVMSCOPE_DAEMON_PUSH_PROFILE_H
#define KVMSCOPE_DAEMON_PUSH_PROFILE_H

#include <stdatomic.h>

#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/recordings.h"

/*
 * Stores the profiles of FILE in SPOOL, with its domain's symbols, for a store with FORMAT:
 * Pyroscope's have no labels (struct pprof_options). The same file gives the same names, so that a
 * repetition replaces them. It ends with -ECANCELED soon after *STOP (may be NULL) is true.
 * -EINVAL, -ENOENT: the recording can never be read, or takes more CPU time than a guest may cause;
 * -ESTALE: it cannot be read now, because of the disk or its owner, or the child crashed; -ENOMEM,
 * -EMFILE, -ENFILE, the errors of the spool: retry.
 */
int push_profile_spool(struct push_spool *spool, const struct recordings_file *file,
		       enum push_format format, const atomic_bool *stop);

/* The last step of it: stores the profiles that the child has written to FROM. The child is not
 * trusted, as it has parsed what a guest made. Errors as above; those stored before stay. */
int push_profile_store(struct push_spool *spool, FILE *from, const struct recordings_file *file,
		       const atomic_bool *stop);

#endif
