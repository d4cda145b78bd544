/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triggers of the flight recorder: any part of the program fires one when an event occurs, and the
 * recorder consumes them in order and writes what preceded them.
 *
 *	trigger_fire()		any thread, vCPUs' included, and signal handlers
 *	trigger_consume()	one thread
 *	trigger_fd, _missed	any thread between create and destroy
 *
 * All of them may run at the same time. trigger_fire() takes no lock and allocates nothing; its one
 * system call, on an eventfd, never blocks. TRIGGERS_PENDING events can be pending;
 * trigger_missed() counts further ones.
 */
#ifndef KVMSCOPE_SAMPLE_TRIGGER_H
#define KVMSCOPE_SAMPLE_TRIGGER_H

#include <stdbool.h>
#include <stdint.h>

#define TRIGGERS_PENDING    16
#define TRIGGER_DETAIL_SIZE 192

struct trigger;

enum trigger_kind {
	TRIGGER_COMMAND,      /* by the user: kvmscope dump */
	TRIGGER_SIGNAL,       /* by the user: SIGUSR2 */
	TRIGGER_PANIC,        /* the guest's kernel reports a panic */
	TRIGGER_RESET,        /* the guest ended by a reset */
	TRIGGER_TRIPLE_FAULT, /* the guest ended by a triple fault */
	TRIGGER_KVM_ERROR,    /* the guest ended because KVM cannot continue it */
	TRIGGER_TIMEOUT,      /* the guest did not end in its time limit */
	TRIGGER_CONSOLE_LINE, /* a matching line on the console */
	TRIGGER_STUCK_VCPU,   /* a vCPU has made no exit for too long */
	TRIGGER_EXIT_RATE,    /* a vCPU makes too many exits */
	TRIGGER_STEAL,        /* a vCPU waits too long for a host CPU */
	TRIGGER_KINDS,
};

struct trigger_event {
	uint64_t number; /* 1 for the first event, then increasing by one */
	uint64_t time;   /* of trigger_fire(): ns, CLOCK_MONOTONIC_RAW, as in samples */
	enum trigger_kind kind;
	char detail[TRIGGER_DETAIL_SIZE]; /* details beyond the kind; may be text from the guest */
};

/* -ENOMEM, and the errors of eventfd(). */
int trigger_create(struct trigger **trigger);

/* No thread may use it any longer. NULL is a no-op. */
void trigger_destroy(struct trigger *trigger);

/*
 * Fires an event of KIND. DETAIL, "" without one, is copied and truncated to TRIGGER_DETAIL_SIZE -
 * 1 bytes. Returns the event's number, 0 if there was no room for it or TRIGGER is NULL. Preserves
 * errno and error_message().
 */
uint64_t trigger_fire(struct trigger *trigger, enum trigger_kind kind, const char *detail);

/* Consumes the oldest pending event; false if there is none. */
bool trigger_consume(struct trigger *trigger, struct trigger_event *event);

/* Number of missed events since creation. */
uint64_t trigger_missed(const struct trigger *trigger);

/* An eventfd that is readable if an event was fired since its last read. Owned by the trigger. */
int trigger_fd(const struct trigger *trigger);

/* The name for users: "SIGUSR2", "guest reset", "console line". */
const char *trigger_kind_name(enum trigger_kind kind);

/* True if the guest can cause it any number of times; it can end only once. */
bool trigger_is_from_guest(enum trigger_kind kind);

#endif
