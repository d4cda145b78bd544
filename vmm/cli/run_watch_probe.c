// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch_probe.h"

#include <errno.h>

#include "shared/error.h"

/* The address of the half that is the kernel's, in x86-64's 48 bits and in 57 (SDM vol. 1 3.3.7.1).
 */
#define KERNEL_HALF (1ull << 63)

static bool is_kernel(const struct watch_spec *spec)
{
	return *spec->symbol || spec->offset & KERNEL_HALF;
}

/* What was measured for the kind; a row for a KVM that can do it in kernel code, user code, or
 * both. */
static int check_kind(const struct watch_spec *spec, const struct probe_row *row)
{
	bool code = spec->kind == BREAKPOINT_EXECUTE;
	unsigned int needed = is_kernel(spec) ? PROBE_IN_KERNEL : PROBE_IN_USER;

	/* Data may be accessed from anywhere: what works in a part of the code only would count
	 * wrongly. */
	if (!code)
		needed = PROBE_IN_KERNEL | PROBE_IN_USER;
	if ((row->works & needed) == needed)
		return 0;
	return error_set(
		-ENOTSUP,
		"this host's KVM does not report %s in guests as they should be (%s); see kvmscope doctor",
		code ? "breakpoints in code" : "accesses to watched data", row->detail);
}

static int try_once(const char *id, struct probe_row *row)
{
	return row->id ? 0 : probe_one(id, row);
}

static int try_code(struct run_watch_probe *probe, const struct watch_spec *spec)
{
	int error = try_once("debug.breakpoint", &probe->code);

	if (!error)
		error = check_kind(spec, &probe->code);
	if (!error)
		error = try_once("debug.single_step", &probe->step);
	return error ? error : check_kind(spec, &probe->step);
}

int run_watch_probe(struct run_watch_probe *probe, const struct watch_spec *spec)
{
	int error;

	if (spec->kind == BREAKPOINT_EXECUTE)
		return try_code(probe, spec);
	error = try_once("debug.watchpoint", &probe->data);
	return error ? error : check_kind(spec, &probe->data);
}
