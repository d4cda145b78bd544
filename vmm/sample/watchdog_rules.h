/* SPDX-License-Identifier: Apache-2.0 */
/* When what a vCPU does is out of bounds: decided from readings alone, whatever took them. One
 * thread. */
#ifndef KVMSCOPE_SAMPLE_WATCHDOG_RULES_H
#define KVMSCOPE_SAMPLE_WATCHDOG_RULES_H

#include "vmm/sample/trigger.h"
#include "vmm/sample/vcpu_load.h"

/* What is to be told; each 0 for not at all. */
struct watchdog_limits {
	/*
	 * ms of CPU time that a vCPU runs without an exit of its own. A halted vCPU,
	 * or one that waits for a CPU, uses none.
	 */
	unsigned int stuck;
	uint64_t exits;     /* own exits of a vCPU in a second of time */
	unsigned int steal; /* per cent of a second of time that a vCPU waits for a CPU */
};

/* Of one vCPU; zeroed at first. */
struct watchdog_state {
	bool begun;
	struct vcpu_reading moved;  /* the last one with a new exit */
	struct vcpu_reading before; /* what that was before it */
	struct vcpu_reading second; /* the last second began with it */
	bool told[TRIGGER_KINDS];   /* it is out of bounds still: it is told once */
	bool told_before;           /* that it is stuck, when it last moved */
};

struct watchdog_alarm {
	enum trigger_kind kind;
	char detail[TRIGGER_DETAIL_SIZE];
};

#define WATCHDOG_ALARMS_MAX 3

/*
 * Takes a reading of vCPU INDEX, later than the last one. Puts what came to be
 * out of bounds into ALARMS, WATCHDOG_ALARMS_MAX of them, and returns how many.
 */
unsigned int watchdog_judge(struct watchdog_state *state, const struct watchdog_limits *limits,
			    unsigned int index, const struct vcpu_reading *reading,
			    struct watchdog_alarm *alarms);

#endif
