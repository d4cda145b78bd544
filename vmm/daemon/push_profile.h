/* SPDX-License-Identifier: Apache-2.0 */
/* A recording as profiles that can be pushed: one for each vCPU that has samples in it. The push
 * thread. */
#ifndef KVMSCOPE_DAEMON_PUSH_PROFILE_H
#define KVMSCOPE_DAEMON_PUSH_PROFILE_H

#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/recordings.h"

/*
 * Puts the profiles of FILE into SPOOL, with its domain's names. The same file
 * makes the same names: done twice, it replaces. -EINVAL, -ENOENT: the recording can not be read,
 * and never will; -ESTALE: it can not be read now, for the disk's or its owner's sake; -ENOMEM,
 * -EMFILE, -ENFILE, the errors of the spool: it may be tried again.
 */
int push_profile_spool(struct push_spool *spool, const struct recordings_file *file);

#endif
