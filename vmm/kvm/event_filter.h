/* SPDX-License-Identifier: Apache-2.0 */
/* Which events KVM counts for a guest whose PMU it makes itself. */
#ifndef KVMSCOPE_KVM_EVENT_FILTER_H
#define KVMSCOPE_KVM_EVENT_FILTER_H

#include <stddef.h>
#include <stdint.h>

struct vm;

/* KVM_PMU_EVENT_FILTER_MAX_EVENTS of arch/x86/kvm/pmu.c. */
#define EVENT_FILTER_MAX 300

/*
 * From now on a general counter of the guest stands still that selects one of EVENTS,
 * COUNT of them (at most EVENT_FILTER_MAX); replaces what was set before. Each is event select
 * and unit mask where the vendor's PerfEvtSel has them, all else 0. The guest is not told. Fixed
 * counters are left alone. Documentation/virt/kvm/api.rst, KVM_SET_PMU_EVENT_FILTER;
 * Linux 5.3. -ENOTSUP where this KVM has no such filter; the errors of the ioctl. Any thread.
 */
int vm_deny_events(const struct vm *vm, const uint64_t *events, size_t count);

#endif
