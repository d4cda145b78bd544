/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent on older kernels: perf_event_open(2) refuses what each of them does not support, as
 * perf_copy_attr() does (kernel/events/core.c: reserved bits, and fields after its own size).
 * The rest is this machine's kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent_fixture.h"
#include "tests/unit/shim/test.h"

/* Where this machine is busy, and events are lost. */
#define TRIES 50

/* perf_event_attr as older kernels have it, bytes: PERF_ATTR_SIZE_VER5 and VER6. */
enum { SIZE_4_1 = 112, SIZE_5_5 = 120 };

struct old_kernel {
	const char *release;
	size_t attribute_size;
	bool ksymbol, cgroup; /* that it knows: bpf_event came with the first, text_poke after the
				 second */
	uint32_t features;
};

static const struct old_kernel kernels[] = {
	{ "4.14", SIZE_4_1, false, false, AGENT_FEATURE_EVENTS },
	{ "5.4", SIZE_4_1, true, false, AGENT_FEATURE_EVENTS | AGENT_FEATURE_KSYMBOLS },
	{ "5.7", SIZE_5_5, true, true, AGENT_FEATURE_EVENTS | AGENT_FEATURE_KSYMBOLS },
};

/* --- its perf_event_open() ----------------------------------------------------- */

struct supervisor {
	const struct old_kernel *kernel;
	int listener, stop[2];
	pthread_t thread;
	unsigned int refused, allowed;
};

static int install_filter(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &filter);
}

/* The kernel's error for ATTRIBUTE, of SIZE bytes; 0: it accepts it. */
static int answer_of(const struct old_kernel *kernel, const struct perf_event_attr *attribute,
		     size_t size)
{
	const uint8_t *bytes = (const uint8_t *)attribute;

	for (size_t i = kernel->attribute_size; i < size; i++)
		if (bytes[i])
			return -E2BIG;
	if (((attribute->ksymbol || attribute->bpf_event) && !kernel->ksymbol) ||
	    ((attribute->cgroup || attribute->text_poke) && !kernel->cgroup) || attribute->build_id)
		return -EINVAL;
	return 0;
}

static int judge(const struct supervisor *supervisor, const struct seccomp_notif *call)
{
	struct perf_event_attr attribute = { 0 };
	struct iovec to = { &attribute, sizeof(attribute) };
	struct iovec from = { (void *)(uintptr_t)call->data.args[0], sizeof(attribute) };

	if (process_vm_readv((pid_t)call->pid, &to, 1, &from, 1, 0) != sizeof(attribute))
		return -EFAULT;
	return answer_of(supervisor->kernel, &attribute, attribute.size);
}

static void *supervise(void *argument)
{
	struct supervisor *supervisor = argument;
	struct pollfd fds[] = { { .fd = supervisor->listener, .events = POLLIN },
				{ .fd = supervisor->stop[0], .events = POLLIN } };

	while (poll(fds, 2, -1) >= 0 && !fds[1].revents && !(fds[0].revents & POLLHUP)) {
		struct seccomp_notif_resp answer = { 0 };
		struct seccomp_notif call = { 0 };

		if (ioctl(supervisor->listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		answer.id = call.id;
		answer.error = judge(supervisor, &call);
		if (!answer.error)
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		supervisor->refused += !!answer.error;
		supervisor->allowed += !answer.error;
		ioctl(supervisor->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return NULL;
}

/* --- the agent on it ----------------------------------------------------------- */

/* Reports the descriptor of its seccomp listener, and waits until that was read. */
static void run_agent(int fd, int channel)
{
	int listener = install_filter();
	char number[16];

	if (write(channel, &listener, sizeof(listener)) != sizeof(listener) || listener < 0 ||
	    read(channel, number, 1) != 1)
		_exit(126);
	snprintf(number, sizeof(number), "%d", fd);
	fcntl(fd, F_SETFD, 0);
	execl(AGENT, AGENT, "--fd", number, NULL);
	_exit(127);
}

/* The child's descriptor as one of ours; -1. */
static int take_descriptor(pid_t child, int number)
{
	int process = (int)syscall(SYS_pidfd_open, child, 0);
	int taken =
		process < 0 || number < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, number, 0);

	if (process >= 0)
		close(process);
	return taken;
}

static bool begin(struct agent_fixture *fixture, struct supervisor *supervisor)
{
	struct agent_options options = { .tsc_known = true };
	int fds[2], channel[2], number = -1;

	*fixture = (struct agent_fixture){ .guest = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) || pipe(supervisor->stop) ||
	    ring_create(&fixture->ring, 4 << 20))
		return false;
	fixture->process = fork();
	if (!fixture->process)
		run_agent(fds[1], channel[1]);
	close(fds[1]);
	close(channel[1]);
	if (read(channel[0], &number, sizeof(number)) == sizeof(number))
		supervisor->listener = take_descriptor(fixture->process, number);
	if (supervisor->listener >= 0)
		pthread_create(&supervisor->thread, NULL, supervise, supervisor);
	if (write(channel[0], "x", 1) != 1)
		return false;
	close(channel[0]);
	options.fd = fds[0];
	options.ring = fixture->ring;
	return !agent_start(&fixture->agent, &options);
}

static void end(struct agent_fixture *fixture, struct supervisor *supervisor,
		struct agent_statistics *statistics)
{
	agent_fixture_tear_down(fixture, statistics);
	if (supervisor->listener >= 0) {
		CHECK_EQUAL(write(supervisor->stop[1], "x", 1), 1);
		pthread_join(supervisor->thread, NULL);
		close(supervisor->listener);
	}
	close(supervisor->stop[0]);
	close(supervisor->stop[1]);
}

struct program {
	uint32_t pid;
	bool build_id;
	bool lost; /* something is, which may have been about it */
};

static bool is_program(const struct sideband *record, void *context)
{
	const struct sideband_mmap *mapping = (const void *)record;
	struct program *program = context;

	program->lost |= record->type == SIDEBAND_LOST;
	if (program->lost)
		return true;
	if (record->type != SIDEBAND_MMAP || record->pid != program->pid ||
	    !strstr(mapping->name, "/kvmscope-agent"))
		return false;
	program->build_id = mapping->build_id_size;
	return true;
}

/* Another agent, which finds no port: it stays until it is killed. */
static pid_t run_program(void)
{
	pid_t child = fork();

	if (!child) {
		execl(AGENT, AGENT, "--port", "org.kvmscope.none", NULL);
		_exit(127);
	}
	return child;
}

/* False: that is not known, as events were lost. */
static bool see_program(struct agent_fixture *fixture)
{
	struct program program = { .pid = (uint32_t)run_program() };

	CHECK(agent_fixture_find(fixture, is_program, &program));
	kill((pid_t)program.pid, SIGKILL);
	waitpid((pid_t)program.pid, NULL, 0);
	/* The agent reads it out of the file. */
	CHECK(program.lost || program.build_id);
	return !program.lost;
}

static void check_kernel(const struct old_kernel *kernel)
{
	struct supervisor supervisor = { .kernel = kernel, .listener = -1 };
	struct agent_statistics statistics;
	struct agent_fixture fixture;
	bool seen = false;

	REQUIRE(begin(&fixture, &supervisor));
	CHECK(agent_fixture_wait(&fixture, agent_fixture_snapshot_is_done));
	for (int i = 0; i < TRIES && !seen; i++)
		seen = see_program(&fixture);
	CHECK(seen);
	end(&fixture, &supervisor, &statistics);
	printf("Linux %s: features %#x, perf_event_open() refused %u times, taken %u times\n",
	       kernel->release, statistics.features, supervisor.refused, supervisor.allowed);
	CHECK_EQUAL(statistics.features & (AGENT_FEATURE_EVENTS | AGENT_FEATURE_KSYMBOLS |
					   AGENT_FEATURE_BUILD_IDS | AGENT_FEATURE_CONNECTOR),
		    kernel->features);
	CHECK_EQUAL(statistics.error, 0);
	CHECK(supervisor.allowed > 0);
	CHECK((supervisor.refused > 0) == !kernel->ksymbol);
}

TEST(agent_old_kernels, each_reports_what_it_supports)
{
	if (!agent_process_allows_events())
		SKIP("perf_event_open(2) is not allowed here");
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		check_kernel(&kernels[i]);
}
