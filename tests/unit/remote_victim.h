/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that others stop and make execute system calls. It makes its own call repeatedly, and
 * checks that its state is preserved.
 */
#ifndef KVMSCOPE_TESTS_UNIT_REMOTE_VICTIM_H
#define KVMSCOPE_TESTS_UNIT_REMOTE_VICTIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/remote_call.h"

/* Registers and memory around a call, which the other process has to preserve. */
struct remote_victim_kept {
	uint64_t general[12]; /* rbx, rbp, rdi, rsi, rdx, r8, r9, r10, r12 to r15 */
	uint64_t red_zone[2];
	uint64_t vectors[32];
};

/* Shared by the processes of a test. */
struct remote_victim {
	struct remote_victim_kept before, after; /* first: the assembly code uses it */
	int64_t result;
	volatile uint64_t rounds, bad, interrupted, signals, calls;
	int epoll, pipe; /* offset in the code of 5 bytes */
	pid_t pid;
};

/* The current test's victim, or NULL. */
extern struct remote_victim *victim;

/* Starts it, and finds the code with which it can be made to execute calls. */
void remote_victim_start(struct remote_code *code);
void remote_victim_end(void);

bool remote_victim_has_ended(void);

/* Waits until it has made another call of its own. Returns false if it no longer does. */
bool remote_victim_continues(void);

#endif
