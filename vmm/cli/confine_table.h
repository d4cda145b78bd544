/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that threads of kvmscope run may make. */
#ifndef KVMSCOPE_CLI_CONFINE_TABLE_H
#define KVMSCOPE_CLI_CONFINE_TABLE_H

#include <seccomp.h>
#include <stdint.h>

/* Bits of threads; their numbers are the indices of names[] in confine_calls.c. */
#define CONFINE_VCPU      (1u << 0)
#define CONFINE_DEVICES   (1u << 1)
#define CONFINE_COLLECTOR (1u << 2)
#define CONFINE_PARSER    (1u << 3)
#define CONFINE_AGENT     (1u << 4)
#define CONFINE_WATCHDOG  (1u << 5)
#define CONFINE_CONTROL   (1u << 6)
#define CONFINE_ATTACH    (1u << 7)
#define CONFINE_MAIN      (1u << 8)

/* The kernel ignores the upper half of arguments of type int, so a filter must, too. */
#define CONFINE_INT(value) SCMP_CMP_MASKED_EQ, UINT32_MAX, (value)

struct confine_rule {
	unsigned int threads;
	int call;                      /* that they may make */
	struct scmp_arg_cmp condition; /* zeroed: with any arguments */
};

/* Ends with a rule without threads. Several rules of a call are alternatives. */
extern const struct confine_rule confine_table[];

#endif
