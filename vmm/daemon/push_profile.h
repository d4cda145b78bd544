/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a recording to profiles for the store: one for each vCPU with samples. The push thread.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_PROFILE_H
#define KVMSCOPE_DAEMON_PUSH_PROFILE_H

#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/recordings.h"

/*
 * Stores the profiles of FILE in SPOOL, with its domain's symbols. The same file gives the same
 * names, so that a repetition replaces them. -EINVAL, -ENOENT: the recording can never be read;
 * -ESTALE: it cannot be read now, because of the disk or its owner; -ENOMEM, -EMFILE, -ENFILE, the
 * errors of the spool: retry.
 */
int push_profile_spool(struct push_spool *spool, const struct recordings_file *file);

#endif
