/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

bool agent_process_allows_events(void)
{
	struct perf_event_attr attribute = { .type = PERF_TYPE_SOFTWARE,
					     .config = PERF_COUNT_SW_DUMMY,
					     .size = sizeof(attribute) };
	int fd = (int)syscall(SYS_perf_event_open, &attribute, -1, 0, -1, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/*
 * Forbids perf_event_open(2) from here on, as containers do, and some kernels under
 * kernel.perf_event_paranoid=4.
 */
static void forbid_events(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(126);
}

const char *agent_process_kernel_files;

static bool see(const char *name, const char *place)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", agent_process_kernel_files, name);
	return !mount(path, place, NULL, MS_BIND, NULL);
}

/* From here on. */
static bool see_kernel_files(void)
{
	return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       see("proc", "/proc") && see("module", "/sys/module");
}

pid_t agent_process_run(int fd, bool events)
{
	char number[16];
	pid_t child = fork();

	if (child)
		return child;
	if (agent_process_kernel_files && !see_kernel_files())
		_exit(126);
	if (!events)
		forbid_events();
	snprintf(number, sizeof(number), "%d", fd);
	fcntl(fd, F_SETFD, 0);
	execl(AGENT, AGENT, "--fd", number, NULL);
	_exit(127);
}
