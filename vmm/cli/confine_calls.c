/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/confine_calls.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confine_table.h"
#include "vmm/devices/terminal.h"

/* Numbers of system calls are below. */
#define CALLS_MAX 512

/* The names of threads, or how they begin, by the number of their bit. */
static const char *const names[] = {
	"vCPU ", "devices", "collector", "parser", "agent", "watchdog", "control", "attach", "main",
};
#define THREADS (sizeof(names) / sizeof(names[0]))

/* Compiled before the first thread starts, constant afterwards. */
static struct sock_fprog programs[THREADS];
static char *call_names[CALLS_MAX];

static int allow(scmp_filter_ctx filter, int call, struct scmp_arg_cmp condition)
{
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, condition.op != _SCMP_CMP_MIN,
				condition);
}

static int allow_rules(scmp_filter_ctx filter, unsigned int thread, bool bpf)
{
	int error = 0;

	for (const struct confine_rule *rule = confine_table; rule->threads && !error; rule++)
		if (rule->threads & thread && (bpf || rule->call != SYS_bpf))
			error = allow(filter, rule->call, rule->condition);
	/* pthread_kill(), abort(); no other process of the user */
	if (!error)
		error = allow(filter, SYS_tgkill, SCMP_A0(CONFINE_INT((unsigned int)getpid())));
	/* Its flags are in memory; the C library uses clone() then. */
	return error ? error : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SYS_clone3, 0);
}

/* libseccomp 2.5 writes programs to files only. */
static int export(scmp_filter_ctx filter, struct sock_fprog *program)
{
	int fd = memfd_create("filter", MFD_CLOEXEC);
	int error = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
	off_t size = error ? 0 : lseek(fd, 0, SEEK_END);

	program->filter = size > 0 ? malloc((size_t)size) : NULL;
	program->len = (unsigned short)((size_t)size / sizeof(struct sock_filter));
	if (!error && (!program->filter || pread(fd, program->filter, (size_t)size, 0) != size))
		error = -ENOMEM;
	if (fd >= 0)
		close(fd);
	return error;
}

static int compile(size_t thread, bool bpf)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_TRAP);
	int error = filter ? 0 : -ENOMEM;

	/* A binary tree of the calls' numbers */
	if (!error)
		error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!error)
		error = allow_rules(filter, 1u << thread, bpf);
	if (!error)
		error = export(filter, &programs[thread]);
	seccomp_release(filter);
	return error;
}

/* Async-signal-safe: the names were looked up before. */
static void on_violation(int signal, siginfo_t *info, void *context)
{
	int call = info->si_syscall;
	char text[256], thread[16] = "";
	int size;

	(void)signal;
	(void)context;
	terminal_restore();
	prctl(PR_GET_NAME, thread);
	size = snprintf(text, sizeof(text),
			"kvmscope: error: the thread '%s' called %s (%d), which its seccomp filter "
			"forbids; --no-sandbox runs without filters\n",
			thread,
			call >= 0 && call < CALLS_MAX && call_names[call] ? call_names[call] : "?",
			call);
	if (size > 0 && write(STDERR_FILENO, text, (size_t)size) < 0)
		_exit(EXIT_FAILED);
	_exit(EXIT_FAILED);
}

static int handle_violations(void)
{
	struct sigaction action = { .sa_sigaction = on_violation, .sa_flags = SA_SIGINFO };

	for (int i = 0; i < CALLS_MAX; i++)
		call_names[i] = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, i);
	return sigaction(SIGSYS, &action, NULL) ? -errno : 0;
}

int confine_calls_prepare(bool bpf)
{
	int error = handle_violations();

	for (size_t thread = 0; thread < THREADS && !error; thread++)
		error = compile(thread, bpf);
	return error ? error_set(error, "cannot make seccomp filters: %s", strerror(-error)) : 0;
}

int confine_calls(const char *thread)
{
	size_t i = 0;

	while (i < THREADS && strncmp(thread, names[i], strlen(names[i])) != 0)
		i++;
	if (i == THREADS)
		return error_set(-EINVAL, "there is no seccomp filter for it");
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &programs[i])
		       ? error_set(-errno, "seccomp: %m")
		       : 0;
}
