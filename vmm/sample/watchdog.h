/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: a thread that polls each vCPU's activity and fires a trigger if it exceeds a
 * limit. It stops no vCPU. Create and destroy it on one thread. */
#ifndef KVMSCOPE_SAMPLE_WATCHDOG_H
#define KVMSCOPE_SAMPLE_WATCHDOG_H

#include "vmm/kvm/vm.h"
#include "vmm/sample/trigger.h"
#include "vmm/sample/vcpu_load.h"

/* Limits; 0 disables each. */
struct watchdog_limits {
	/* ms of CPU time without an exit of the guest's own. A vCPU that is halted or waits for
	 * a CPU uses none. */
	unsigned int stuck;
	unsigned int exits; /* own exits of a vCPU per second */
	unsigned int steal; /* per cent of a second for which a vCPU waits for a CPU */
};

/* State of one vCPU; initially zeroed. */
struct watchdog_state {
	bool begun;
	struct vcpu_reading moved;    /* the last reading with a new exit */
	struct vcpu_reading before;   /* `moved` before that */
	struct vcpu_reading second;   /* the reading at the start of the current second */
	bool reported[TRIGGER_KINDS]; /* currently out of bounds: reported once */
	bool reported_before;         /* reported[TRIGGER_STUCK_VCPU] before it last moved */
};

struct watchdog_alarm {
	enum trigger_kind kind;
	char detail[TRIGGER_DETAIL_SIZE];
};

#define WATCHDOG_ALARMS_MAX 3

/* Processes a reading of vCPU INDEX, later than the previous one. Stores new violations in
 * ALARMS, which has room for WATCHDOG_ALARMS_MAX, and returns their number. */
unsigned int watchdog_judge(struct watchdog_state *state, const struct watchdog_limits *limits,
			    unsigned int index, const struct vcpu_reading *reading,
			    struct watchdog_alarm *alarms);

struct watchdog;

/* Before the vCPUs of VM run; VM and TRIGGER must outlive it. The errors of vcpu_load_open() and
 * of threads, -ENOMEM. */
int watchdog_create(struct watchdog **watchdog, const struct vm *vm,
		    const struct watchdog_limits *limits, struct trigger *trigger);

/* Ends and joins the thread. Works on NULL. */
void watchdog_destroy(struct watchdog *watchdog);

#endif
