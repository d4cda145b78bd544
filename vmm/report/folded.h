/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks, the input of flamegraph.pl and similar tools: lines of
 * "comm;outermost;...;innermost COUNT". Any thread. */
#ifndef KVMSCOPE_REPORT_FOLDED_H
#define KVMSCOPE_REPORT_FOLDED_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/* The frame's symbol; for an unsymbolized frame its image, "[libc.so.6]" or "[unknown]". May use
 * TEXT of SIZE bytes. */
const char *folded_frame_name(const struct profile_frame *frame, char *text, size_t size);
/* The stack's comm, else "pid 123", or "guest" if the process is unknown too. May use TEXT. */
const char *folded_comm(const struct profile_stack *stack, char *text, size_t size);

/* What stacks start with, before the comm. */
enum folded_group { FOLDED_PLAIN, FOLDED_BY_CGROUP, FOLDED_BY_CONTAINER };

/* STACK's cgroup path or container, or "[no container]", "[unknown cgroup]"; NULL for FOLDED_PLAIN.
 */
const char *folded_group(const struct profile_stack *stack, enum folded_group by);

/*
 * Writes the only event of PROFILE: sorted lines, equal stacks merged, with the number of samples.
 * ';' in a name becomes ':'. 0, -ENOMEM or a negative errno of writing.
 */
int folded_write(const struct profile *profile, enum folded_group by, FILE *to);

/*
 * The same for two profiles: the samples of each stack in BASELINE, as many in all as in PROFILE,
 * and those in PROFILE, as difffolded.pl -n writes them. flamegraph.pl colours the difference.
 */
int folded_diff_write(const struct profile *baseline, const struct profile *profile, FILE *to);

#endif
