/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text by which a user requests a watch:
 *
 *	sym[+off]|addr[:len[:rwx]][@vcpu][,pinned][,cr3=N|pid=N|comm=NAME][,period=N][,limit=N]
 *
 * as in jiffies_64:8:w, schedule:x, 0xffffffff81a01234:4:rw@0,pinned. The default is 4 bytes, reads
 * and writes, as in perf.
 */
#ifndef KVMSCOPE_DEBUG_WATCH_SPEC_H
#define KVMSCOPE_DEBUG_WATCH_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/debug/debug_registers.h"

#define WATCH_SYMBOL_SIZE 128
#define WATCH_COMM_SIZE   16
#define WATCH_NO_PID      UINT32_MAX

struct watch_spec {
	char symbol[WATCH_SYMBOL_SIZE]; /* "" if the address was given */
	uint64_t offset;                /* from the symbol, or the address itself */
	enum breakpoint_kind kind;
	uint8_t length; /* bytes */
	int vcpu;       /* or -1: all */
	bool pinned;
	uint64_t cr3;               /* 0: any */
	uint32_t pid;               /* WATCH_NO_PID: any */
	char comm[WATCH_COMM_SIZE]; /* "": any */
	uint64_t period;
	uint32_t limit; /* hits per second on one vCPU; 0: the limit of watches.h */
};

/* -EINVAL with a message about the mistake in TEXT. */
int watch_spec_parse(struct watch_spec *spec, const char *text);

/* The event's name in perf's style: "mem:jiffies_64:w". Truncated to SIZE. */
void watch_spec_name(const struct watch_spec *spec, char *name, size_t size);

#endif
