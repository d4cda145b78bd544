/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as flamegraph.pl and its kin read them: "comm;outermost;...;innermost COUNT", one line
 * each. */
#ifndef KVMSCOPE_REPORT_FOLDED_H
#define KVMSCOPE_REPORT_FOLDED_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/* What a frame without a name is called in merged stacks: its image, "[libc.so.6]" or "[unknown]".
 * TEXT has SIZE bytes. */
const char *folded_frame_name(const struct profile_frame *frame, char *text, size_t size);
/* What a stack without a comm begins with: "pid 123", or "guest" where that is not known either. */
const char *folded_comm(const struct profile_stack *stack, char *text, size_t size);

/* What stacks begin with, before the comm. */
enum folded_group { FOLDED_PLAIN, FOLDED_BY_CGROUP, FOLDED_BY_CONTAINER };

/* That of STACK: a cgroup's path, a container's name; where there is none "[no container]", and
 * where that is not known "[unknown cgroup]". NULL for FOLDED_PLAIN. */
const char *folded_group(const struct profile_stack *stack, enum folded_group by);

/*
 * PROFILE has one event only. Lines in alphabetic order, equal stacks in one; COUNT is the number
 * of samples. ';' in a name becomes ':'. 0, -ENOMEM or a negative errno of writing.
 */
int folded_write(const struct profile *profile, enum folded_group by, FILE *to);

#endif
