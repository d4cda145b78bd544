/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope top with two VMs that do not exist, and whose reports are always the same: its screen
 * can be tested without KVM. The second VM runs while the file CANNED_VM exists. Names have
 * characters that control a terminal. Linked with --wrap for the functions below.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/cli/command.h"
#include "vmm/cli/top_worker.h"

#define FIRST  4000001
#define SECOND 4000002

static const char *const reports[] = {
	"{\"backend\":\"bpf\",\"seconds\":2.0,\"samples\":300,\"host_samples\":10,\"lost_samples\":3,"
	"\"vcpus\":[{\"vcpu\":0,\"exits\":2000,\"guest_ns\":1500,\"kvm_ns\":200,\"vmm_ns\":100,"
	"\"waiting_ns\":100,\"halted_ns\":60,\"blocked_ns\":40},{\"vcpu\":1,\"exits\":1000,"
	"\"guest_ns\":500,\"kvm_ns\":0,\"vmm_ns\":0,\"waiting_ns\":0,\"halted_ns\":1500,"
	"\"blocked_ns\":0}],\"exits\":[{\"reason\":\"hlt\",\"exits\":2250},{\"reason\":\"msr\","
	"\"exits\":750}],\"functions\":["
	"{\"cpu_percent\":61.5,\"samples\":120,\"function\":\"share_sixty\",\"image\":\"worker\","
	"\"process\":\"worker\",\"kernel\":false,\"callers\":\"    |\\n    ---user_works\\n       "
	"main\\n\"},"
	"{\"cpu_percent\":30.25,\"samples\":60,\"function\":\"clear_page_erms\",\"image\":"
	"\"[kernel.kallsyms]\",\"process\":\"kcompactd0\",\"kernel\":true},"
	"{\"cpu_percent\":5,\"samples\":10,\"function\":\"red\\u001b[31m\\u0007\",\"image\":"
	"\"lib\\u009b2J.so\",\"process\":\"e\\u001b]0;t\\u0007\",\"kernel\":false}]}\n",
	"{\"backend\":\"bpf\",\"seconds\":2.0,\"samples\":40,\"host_samples\":0,\"lost_samples\":0,"
	"\"vcpus\":[{\"vcpu\":0,\"exits\":20,\"guest_ns\":200,\"kvm_ns\":0,\"vmm_ns\":0,"
	"\"waiting_ns\":0,\"halted_ns\":1800,\"blocked_ns\":0}],\"exits\":[],\"functions\":["
	"{\"cpu_percent\":10,\"samples\":20,\"function\":\"default_idle\",\"image\":"
	"\"[kernel.kallsyms]\",\"process\":\"swapper\",\"kernel\":true}]}\n",
};

size_t __wrap_vmm_process_list(pid_t *pids, size_t max);
size_t __wrap_process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX]);
bool __wrap_qemu_name(pid_t pid, char name[QEMU_NAME_SIZE]);
pid_t __wrap_top_worker_start(const struct top_worker_options *options, int *fd);

static bool second_runs(void)
{
	const char *path = getenv("CANNED_VM");

	return path && !access(path, F_OK);
}

size_t __wrap_vmm_process_list(pid_t *pids, size_t max)
{
	pids[0] = FIRST;
	pids[1] = SECOND;
	return second_runs() ? 2 : 1;
}

size_t __wrap_process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX])
{
	vm_fds[0] = 9;
	return 1;
}

bool __wrap_qemu_name(pid_t pid, char name[QEMU_NAME_SIZE])
{
	snprintf(name, QEMU_NAME_SIZE, "%s", pid == FIRST ? "web\033[7m" : "db");
	return true;
}

pid_t __wrap_top_worker_start(const struct top_worker_options *options, int *fd)
{
	const char *report = reports[options->pid == SECOND];
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -1;
	pid = fork();
	if (!pid) {
		close(ends[0]);
		while (send(ends[1], report, strlen(report), MSG_NOSIGNAL) > 0)
			usleep(300000);
		_exit(0);
	}
	close(ends[1]);
	*fd = ends[0];
	return pid;
}

int command_failed(void)
{
	log_error("%s", error_message());
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	return command_top(argc, argv);
}
