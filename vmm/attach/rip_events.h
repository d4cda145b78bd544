/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf event on each CPU that BPF's program writes to, and nobody reads: for a record of it perf
 * asks KVM for the guest's RIP, which kvm_intel has in the VMCS alone until it is asked. So it is
 * known to the program, too. Any one thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_RIP_EVENTS_H
#define KVMSCOPE_ATTACH_RIP_EVENTS_H

#include <stddef.h>

struct rip_events;

/* The size that the map for them has to have: of a machine with all CPUs that there can be. */
size_t rip_events_count(void);

/*
 * Opens them, and puts them into the map of MAP_FD (BPF_MAP_TYPE_PERF_EVENT_ARRAY), by CPU. A CPU
 * that is offline has none. -EACCES: perf may not look at CPUs, with the message; -ENOMEM, -EMFILE
 * and others.
 */
int rip_events_open(struct rip_events **events, int map_fd);

/* Works on NULL. */
void rip_events_close(struct rip_events *events);

#endif
