/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_watch_probe.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/rights.h"

/* Of the process: all others are closed. */
#define PROBE_FD 3

static const char *const probes[] = { [WATCH_PROBE_CODE] = "debug.breakpoint",
				      [WATCH_PROBE_STEP] = "debug.single_step",
				      [WATCH_PROBE_DATA] = "debug.watchpoint" };

/* A row points to constants of the program, which both processes have at the same addresses. */
static _Noreturn void serve(int fd, pid_t caller)
{
	/* The device belongs to root, and --user may be another one. */
	static const unsigned int kept[] = { CAP_DAC_OVERRIDE };
	unsigned char which;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != caller ||
	    rights_keep_only(kept, 1) || (fd != PROBE_FD && dup2(fd, PROBE_FD) < 0) ||
	    close_range(PROBE_FD + 1, UINT_MAX, 0))
		_exit(1);
	while (read(PROBE_FD, &which, 1) == 1 && which < WATCH_PROBES) {
		struct probe_row row = { .id = NULL };

		if (probe_one(probes[which], &row) ||
		    write(PROBE_FD, &row, sizeof(row)) != sizeof(row))
			break;
	}
	_exit(0);
}

int run_watch_probe_start(struct run_watch_probe *probe)
{
	pid_t caller = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return error_set(-errno, "cannot create a socket: %m");
	fflush(NULL);
	probe->pid = fork();
	if (!probe->pid)
		serve(ends[1], caller);
	close(ends[1]);
	probe->fd = ends[0];
	if (probe->pid > 0)
		return 0;
	run_watch_probe_end(probe);
	return error_set(-EAGAIN, "cannot start the process that probes guest debugging");
}

void run_watch_probe_end(struct run_watch_probe *probe)
{
	if (probe->fd < 0)
		return;
	close(probe->fd);
	probe->fd = -1;
	if (probe->pid > 0)
		waitpid(probe->pid, NULL, 0);
}

static int probe_once(struct run_watch_probe *probe, unsigned char which)
{
	struct probe_row row;

	if (probe->rows[which].id)
		return 0;
	if (write(probe->fd, &which, 1) != 1 || read(probe->fd, &row, sizeof(row)) != sizeof(row))
		return error_set(-EPIPE, "the process that probes guest debugging has ended");
	probe->rows[which] = row;
	return 0;
}

/* Set in all addresses of the kernel's half, with 48 and with 57 bits (SDM vol. 1 3.3.7.1). */
#define UPPER_HALF (1ull << 63)

static bool is_kernel(const struct watch_spec *spec)
{
	return *spec->symbol || spec->offset & UPPER_HALF;
}

/* The probe works in kernel code, in user code, or in both. */
static int check_works(struct run_watch_probe *probe, enum watch_probe which,
		       const struct watch_spec *spec)
{
	bool code = spec->kind == BREAKPOINT_EXECUTE;
	unsigned int needed = is_kernel(spec) ? PROBE_IN_KERNEL : PROBE_IN_USER;
	int error = probe_once(probe, (unsigned char)which);

	/* Data can be accessed from anywhere: working in a part of the code would miss accesses. */
	if (!code)
		needed = PROBE_IN_KERNEL | PROBE_IN_USER;
	if (error || (probe->rows[which].works & needed) == needed)
		return error;
	return error_set(
		-ENOTSUP,
		"this host's KVM does not report %s in guests correctly (%s); see kvmscope doctor",
		code ? "breakpoints in code" : "accesses to watched data",
		probe->rows[which].detail);
}

int run_watch_probe_check(struct run_watch_probe *probe, const struct watch_spec *spec)
{
	int error;

	if (spec->kind != BREAKPOINT_EXECUTE)
		return check_works(probe, WATCH_PROBE_DATA, spec);
	error = check_works(probe, WATCH_PROBE_CODE, spec);
	return error ? error : check_works(probe, WATCH_PROBE_STEP, spec);
}
