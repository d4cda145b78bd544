/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's host name, as uname -n prints it. */
#ifndef KVMSCOPE_RECORD_COLLECTOR_HOSTNAME_H
#define KVMSCOPE_RECORD_COLLECTOR_HOSTNAME_H

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"

#define COLLECTOR_HOSTNAME_SIZE 65

/*
 * Reads it from init_uts_ns in guest memory, a struct uts_namespace that has a struct new_utsname
 * at its start or after a reference count (include/linux/utsname.h): recognized by its known parts.
 * -ENOENT if it is missing or not set yet. Not on a vCPU thread.
 */
int collector_hostname(const struct guest_kernel *kernel, const struct guest_view *view,
		       char hostname[COLLECTOR_HOSTNAME_SIZE]);

#endif
