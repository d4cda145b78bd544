/* SPDX-License-Identifier: Apache-2.0 */
/* How many vCPUs a QEMU may come to have, by its command line (-smp). Any thread. */
#ifndef KVMSCOPE_ATTACH_QEMU_VCPUS_H
#define KVMSCOPE_ATTACH_QEMU_VCPUS_H

#include <stddef.h>
#include <sys/types.h>

/*
 * The ids of all vCPUs that the QEMU with COMMAND_LINE, SIZE bytes as /proc/PID/cmdline has it, may
 * get while it runs are below it, VMM_VCPUS_MAX at most. They are APIC IDs, in which each level of
 * the topology has bits of its own, so they can be more than there are vCPUs (QEMU:
 * include/hw/i386/topology.h). 0: it does not say.
 */
unsigned int qemu_vcpu_ids_parse(const char *command_line, size_t size);

/* The same of process PID, whatever it is. */
unsigned int qemu_vcpu_ids(pid_t pid);

#endif
