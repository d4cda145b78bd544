/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: a thread that polls each vCPU's activity and fires a trigger if it exceeds a
 * limit. It stops no vCPU. Create and destroy it on one thread. */
#ifndef KVMSCOPE_SAMPLE_WATCHDOG_H
#define KVMSCOPE_SAMPLE_WATCHDOG_H

#include "vmm/kvm/vm.h"
#include "vmm/sample/watchdog_rules.h"

struct watchdog;

/* Before the vCPUs of VM run; VM and TRIGGER must outlive it. The errors of vcpu_load_open() and
 * of threads, -ENOMEM. */
int watchdog_create(struct watchdog **watchdog, const struct vm *vm,
		    const struct watchdog_limits *limits, struct trigger *trigger);

/* Ends and joins the thread. Works on NULL. */
void watchdog_destroy(struct watchdog *watchdog);

#endif
