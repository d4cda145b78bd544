/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triggers of the flight recorder: whoever sees that something happened fires
 * one, and the recorder takes them in their order and writes what led to it.
 *
 *	trigger_fire()		any thread, vCPUs' included, and signal handlers
 *	trigger_take()		one thread
 *	trigger_fd, _missed	any thread between create and destroy
 *
 * All of them may run at the same time. Firing takes no lock and allocates
 * nothing; its one system call, on an eventfd, never blocks. There is room for
 * TRIGGERS_PENDING that were not taken; more are counted and told by
 * trigger_missed().
 */
#ifndef KVMSCOPE_SAMPLE_TRIGGER_H
#define KVMSCOPE_SAMPLE_TRIGGER_H

#include <stdbool.h>
#include <stdint.h>

#define TRIGGERS_PENDING    16
#define TRIGGER_DETAIL_SIZE 192

struct trigger;

enum trigger_kind {
	TRIGGER_COMMAND,      /* the user's: kvmscope dump */
	TRIGGER_SIGNAL,       /* the user's: SIGUSR2 */
	TRIGGER_PANIC,        /* the guest's kernel says that it panics */
	TRIGGER_RESET,        /* the guest ended by a reset */
	TRIGGER_TRIPLE_FAULT, /* the guest ended by a triple fault */
	TRIGGER_KVM_ERROR,    /* the guest ended as KVM can not go on with it */
	TRIGGER_TIMEOUT,      /* the guest did not end in the time it was given */
	TRIGGER_CONSOLE_LINE, /* a line on the console that was waited for */
	TRIGGER_STUCK_VCPU,   /* a vCPU has made no exit for too long */
	TRIGGER_EXIT_RATE,    /* a vCPU makes more exits than it should */
	TRIGGER_STEAL,        /* a vCPU waits for a host CPU for longer than it should */
	TRIGGER_KINDS,
};

struct trigger_event {
	uint64_t number; /* 1 the first, one more for each next */
	uint64_t time;   /* when it was fired: ns, CLOCK_MONOTONIC_RAW, as samples */
	enum trigger_kind kind;
	char detail[TRIGGER_DETAIL_SIZE]; /* what the kind does not say; may be the guest's words */
};

/* -ENOMEM, and the errors of eventfd(). */
int trigger_create(struct trigger **trigger);

/* Nobody may fire or take any more. NULL is a no-op. */
void trigger_destroy(struct trigger *trigger);

/*
 * Something of KIND happened; DETAIL, "" without one, is copied and cut to
 * TRIGGER_DETAIL_SIZE - 1 bytes. Returns the event's number; 0 if it was
 * missed for lack of room, or TRIGGER is NULL: then nobody listens. Leaves
 * errno and error_message() alone.
 */
uint64_t trigger_fire(struct trigger *trigger, enum trigger_kind kind, const char *detail);

/* The oldest one that was not taken; false if there is none. */
bool trigger_take(struct trigger *trigger, struct trigger_event *event);

/* Those missed since the trigger was made. */
uint64_t trigger_missed(const struct trigger *trigger);

/* An eventfd that is readable when something was fired since it was last read. The trigger's. */
int trigger_fd(const struct trigger *trigger);

/* As users know it: "SIGUSR2", "guest reset", "console line". */
const char *trigger_kind_name(enum trigger_kind kind);

/* Of the guest's making, and as often as it likes: those that its end fires come once. */
bool trigger_is_guests(enum trigger_kind kind);

#endif
