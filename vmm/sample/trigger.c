/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded queue with many writers and one reader, after Dmitry Vyukov's: a slot's turn identifies
 * its owner. For the event at position P (from 0) it is P while the slot is free, and P + 1 while
 * the event can be consumed.
 */
#include "vmm/sample/trigger.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

struct slot {
	_Atomic uint64_t turn;
	struct trigger_event event;
};

struct trigger {
	_Atomic uint64_t fired; /* position of the next event */
	_Atomic uint64_t missed;
	uint64_t consumed; /* position of the next event to consume; the reader's */
	int fd;
	struct slot slots[TRIGGERS_PENDING];
};

int trigger_create(struct trigger **result)
{
	struct trigger *trigger = calloc(1, sizeof(*trigger));

	if (!trigger)
		return error_set(-ENOMEM, "no memory for the triggers");
	trigger->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (trigger->fd < 0) {
		free(trigger);
		return error_set(-errno, "cannot create the triggers' eventfd: %m");
	}
	for (uint64_t i = 0; i < TRIGGERS_PENDING; i++)
		atomic_init(&trigger->slots[i].turn, i);
	*result = trigger;
	return 0;
}

void trigger_destroy(struct trigger *trigger)
{
	if (!trigger)
		return;
	close(trigger->fd);
	free(trigger);
}

/* The slot at POSITION, owned by the caller, or NULL if all are in use. */
static struct slot *claim(struct trigger *trigger, uint64_t *position)
{
	*position = atomic_load(&trigger->fired);
	for (;;) {
		struct slot *slot = &trigger->slots[*position % TRIGGERS_PENDING];
		uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);

		if (turn < *position)
			return NULL;
		if (turn > *position)
			*position = atomic_load(&trigger->fired);
		else if (atomic_compare_exchange_weak(&trigger->fired, position, *position + 1))
			return slot;
	}
}

uint64_t trigger_fire(struct trigger *trigger, enum trigger_kind kind, const char *detail)
{
	int error_before = errno;
	struct slot *slot;
	uint64_t position;

	assert(kind < TRIGGER_KINDS);
	if (!trigger)
		return 0;
	slot = claim(trigger, &position);
	if (slot) {
		slot->event.time = clock_ns(CLOCK_MONOTONIC_RAW);
		slot->event.kind = kind;
		if (!memccpy(slot->event.detail, detail, '\0', TRIGGER_DETAIL_SIZE))
			slot->event.detail[TRIGGER_DETAIL_SIZE - 1] = '\0';
		slot->event.number = position + 1;
		atomic_store_explicit(&slot->turn, position + 1, memory_order_release);
	} else {
		atomic_fetch_add(&trigger->missed, 1);
	}
	eventfd_write(trigger->fd,
		      1); /* fails only after 2^64 unread events, when it is readable anyway */
	errno = error_before;
	return slot ? position + 1 : 0;
}

bool trigger_consume(struct trigger *trigger, struct trigger_event *event)
{
	struct slot *slot = &trigger->slots[trigger->consumed % TRIGGERS_PENDING];

	if (atomic_load_explicit(&slot->turn, memory_order_acquire) != trigger->consumed + 1)
		return false;
	*event = slot->event;
	atomic_store_explicit(&slot->turn, trigger->consumed + TRIGGERS_PENDING,
			      memory_order_release);
	trigger->consumed++;
	return true;
}

uint64_t trigger_missed(const struct trigger *trigger)
{
	return atomic_load(&trigger->missed);
}

int trigger_fd(const struct trigger *trigger)
{
	return trigger->fd;
}

const char *trigger_kind_name(enum trigger_kind kind)
{
	static const char *const names[TRIGGER_KINDS] = {
		[TRIGGER_COMMAND] = "kvmscope dump",
		[TRIGGER_SIGNAL] = "SIGUSR2",
		[TRIGGER_PANIC] = "guest panic",
		[TRIGGER_RESET] = "guest reset",
		[TRIGGER_TRIPLE_FAULT] = "triple fault",
		[TRIGGER_KVM_ERROR] = "KVM error",
		[TRIGGER_TIMEOUT] = "timeout",
		[TRIGGER_CONSOLE_LINE] = "console line",
		[TRIGGER_STUCK_VCPU] = "stuck vCPU",
		[TRIGGER_EXIT_RATE] = "exit rate",
		[TRIGGER_STEAL] = "steal",
	};

	return names[kind];
}

bool trigger_is_from_guest(enum trigger_kind kind)
{
	switch (kind) {
	case TRIGGER_PANIC:
	case TRIGGER_CONSOLE_LINE:
	case TRIGGER_STUCK_VCPU:
	case TRIGGER_EXIT_RATE:
	case TRIGGER_STEAL:
		return true;
	default:
		return false;
	}
}
