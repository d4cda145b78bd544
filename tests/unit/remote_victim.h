/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that others stop and have make calls: it makes one of its own over and over, and looks
 * whether it finds all as it was.
 */
#ifndef KVMSCOPE_TESTS_UNIT_REMOTE_VICTIM_H
#define KVMSCOPE_TESTS_UNIT_REMOTE_VICTIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/remote_call.h"

/* Registers and memory around a call: what the other process has to find as it was. */
struct remote_victim_kept {
	uint64_t general[12]; /* rbx, rbp, rdi, rsi, rdx, r8, r9, r10, r12 to r15 */
	uint64_t red_zone[2];
	uint64_t vectors[32];
};

/* Shared by the processes of a test. */
struct remote_victim {
	struct remote_victim_kept before, after; /* at the start: the assembly knows where */
	int64_t result;
	volatile uint64_t rounds, bad, interrupted, signals, calls;
	int epoll, pipe; /* 5 bytes lie in that */
	pid_t pid;
};

/* The one of this test, if any. */
extern struct remote_victim *victim;

/* Starts it, and finds the code by which it can be had make calls. */
void remote_victim_start(struct remote_code *code);
void remote_victim_end(void);

bool remote_victim_has_ended(void);

/* Waits until it has made a call of its own: false, if it does not any more. */
bool remote_victim_goes_on(void);

#endif
