/* SPDX-License-Identifier: Apache-2.0 */
/* What kvmscope doctor says of the ways to attach to VMs of others. */
#ifndef KVMSCOPE_CLI_DOCTOR_ATTACH_H
#define KVMSCOPE_CLI_DOCTOR_ATTACH_H

#include "vmm/machine/host_probe.h"

/* Tries each way as far as it goes without a VM; ROWS has room for DOCTOR_ATTACH_MAX. Their number.
 * Main thread. */
#define DOCTOR_ATTACH_MAX 8
size_t doctor_attach(struct probe_row *rows);

#endif
