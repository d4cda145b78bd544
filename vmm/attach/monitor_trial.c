/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/qmp_reader.h"

/* s until QEMU has to answer, and ms between tries. */
#define ANSWER_MAX 20
#define TRY_AGAIN  50
/* Exit status of a child that could not execute QEMU, as in shells. */
#define NOT_FOUND 127

struct trial {
	char directory[32], path[48];
	pid_t pid;
};

static _Noreturn void be_qemu(const char *path)
{
	/* Debian's and Red Hat's. */
	static const char *const names[] = { "qemu-system-x86_64", "/usr/libexec/qemu-kvm" };
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	char option[80];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 0; fd < 3; fd++)
		dup2(nothing, fd);
	snprintf(option, sizeof(option), "unix:%s,server=on,wait=off", path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		execlp(names[i], names[i], "-S", "-accel", "tcg", "-m", "16", "-nodefaults",
		       "-no-user-config", "-display", "none", "-qmp", option, NULL);
	_exit(NOT_FOUND);
}

static int start(struct trial *trial)
{
	strcpy(trial->directory, "/tmp/kvmscope-trial-XXXXXX");
	if (!mkdtemp(trial->directory))
		return error_set(-errno, "cannot create a directory in /tmp: %s", strerror(errno));
	snprintf(trial->path, sizeof(trial->path), "%s/qmp", trial->directory);
	fflush(NULL);
	trial->pid = fork();
	if (!trial->pid)
		be_qemu(trial->path);
	return trial->pid < 0 ? error_set(-errno, "cannot start QEMU: %s", strerror(errno)) : 0;
}

static void end(struct trial *trial)
{
	if (trial->pid > 0) {
		kill(trial->pid, SIGKILL);
		waitpid(trial->pid, NULL, 0);
	}
	unlink(trial->path);
	rmdir(trial->directory);
}

/* 0 while it runs. */
static int check_runs(const struct trial *trial)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, (id_t)trial->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
		return 0;
	if (info.si_code == CLD_EXITED && info.si_status == NOT_FOUND)
		return error_set(
			-ENOENT,
			"QEMU (qemu-system-x86_64) is not installed, so its monitor cannot be "
			"tested");
	return error_set(-ECHILD,
			 "QEMU (qemu-system-x86_64) was started to test its monitor, and exited "
			 "at once");
}

/* The socket appears some time after the start, and the greeting later still. */
static int connect_reader(const struct trial *trial, const struct vmm_process *process,
			  struct qmp_reader **reader)
{
	const struct monitor_address address = { .socket = trial->path };
	const struct timespec moment = { .tv_nsec = TRY_AGAIN * NS_PER_MS };
	time_t begin = time(NULL);
	int error, ended;

	while ((error = qmp_reader_start(reader, &address, process, 1))) {
		ended = check_runs(trial);
		if (ended || error == -ENOTSUP || time(NULL) - begin > ANSWER_MAX)
			return ended ? ended : error;
		nanosleep(&moment, NULL);
	}
	return 0;
}

static int check_vcpus(struct qmp_reader *reader)
{
	struct qmp_vcpu vcpus[VMM_VCPUS_MAX];
	static struct vmm_slot slots[VMM_SLOTS_MAX];

	if (qmp_reader_vcpus(reader, vcpus) && qmp_reader_slots(reader, slots))
		return 0;
	return error_set(-EPROTO, "QEMU's monitor does not report vCPUs and memory");
}

/* Reads registers directly: the reader skips halted vCPUs. */
static int check_registers(const struct trial *trial, const struct vmm_process *process)
{
	const struct monitor_address address = { .socket = trial->path };
	struct qmp_registers registers;
	struct monitor *monitor;
	json_t *result;
	const char *text;
	int error = monitor_open(&monitor, &address, process, -1);

	if (error)
		return error;
	error = monitor_execute_hmp(monitor, "info registers -a", &result);
	if (!error) {
		text = json_string_value(result);
		if (!qmp_parse_registers(&text, &registers))
			error = error_set(-EPROTO, "QEMU's monitor does not report registers");
		json_decref(result);
	}
	monitor_close(monitor);
	return error;
}

static int ask(const struct trial *trial)
{
	struct vmm_process *process;
	struct qmp_reader *reader;
	int error = vmm_process_open_monitored(&process, trial->pid);

	if (error)
		return error;
	error = connect_reader(trial, process, &reader);
	if (!error) {
		error = check_vcpus(reader);
		qmp_reader_stop(reader);
	}
	if (!error)
		error = check_registers(trial, process);
	vmm_process_close(process);
	return error;
}

int monitor_trial(void)
{
	struct trial trial = { .pid = -1 };
	int error = start(&trial);

	if (!error)
		error = ask(&trial);
	end(&trial);
	return error;
}
