/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests that pause for seconds and continue: stopped by the VMM, so that the guest's clock stops
 * too (QMP's stop and cont); stopped as a process, where the clock continues; and suspended by
 * themselves (ACPI S3, and suspend-to-idle). Nothing happens in the guest during the pause, so no
 * event may be attributed to it with certainty, whatever its clock says.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/ring.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/quick_boot.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_client.h"

#define KERNEL "build/cache/kernels/6.1/vmlinuz"
#define INITRD "build/initrd/attach-agent.cpio"
/*
 * It acts every tenth of a second. A line on the second serial port selects how the guest suspends,
 * and its kernel reports this on the first one. If something wakes it too early, it tries again.
 */
#define PROGRAM "kvmscope-agent"
static const char command_line[] =
	"console=ttyS0 quiet panic=-1 mitigations=off " QUICK_BOOT " "
	"kvmscope.run=kvmscope-agent+&+(while+read+x;do+echo+7+>/proc/sys/kernel/printk;until+echo+$x+>/sys/power/state;do+sleep+1;done;done)+</dev/ttyS1+&+"
	"while+sleep+0.1;do+" PROGRAM "+--version;done";

#define SECOND 1000000000ull

struct pause {
	uint64_t begin, end;
};

struct guest {
	pid_t vmm;
	char channel_path[64], monitor_path[64], console_path[64], line_path[64];
	int monitor, line;
	struct ring *ring;
	struct agent *agent;
	struct pause pause;
	unsigned long events, inside; /* reported events, and those that were placed in the pause
				       * with certainty */
	uint64_t latest;              /* ns: the time of the latest event */
	unsigned long programs;       /* programs that started after the latest pause, by name */
	unsigned long losses;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static pid_t run_vmm(const struct guest *guest)
{
	char channel[128], monitor[128], console[128], line[128];
	pid_t child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(channel, sizeof(channel), "socket,id=agent,server=on,wait=off,path=%s",
		 guest->channel_path);
	snprintf(monitor, sizeof(monitor), "unix:%s,server=on,wait=off", guest->monitor_path);
	snprintf(console, sizeof(console), "socket,id=console,server=on,wait=off,path=%s",
		 guest->console_path);
	snprintf(line, sizeof(line), "socket,id=line,server=on,wait=off,path=%s", guest->line_path);
	execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "tcg", "-m", "256",
	       "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-kernel",
	       KERNEL, "-initrd", INITRD, "-append", command_line, "-chardev", channel, "-device",
	       "virtio-serial-pci", "-device",
	       "virtserialport,chardev=agent,name=org.kvmscope.agent.0", "-chardev", console,
	       "-device", "isa-serial,chardev=console", "-chardev", line, "-device",
	       "isa-serial,chardev=line", "-qmp", monitor, NULL);
	_exit(127);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = 100 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	strcpy(address.sun_path, path);
	for (int i = 0; i < 1000; i++) { /* until QEMU has created it, at most 10 s */
		if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
			return fd;
		usleep(10000);
	}
	close(fd);
	return -1;
}

/* Sends COMMAND to the socket and reads until a reply begins with WORD. */
static bool send_command(int fd, const char *command, const char *word)
{
	char text[8192];
	size_t size = 0;
	ssize_t got;

	if (*command && write(fd, command, strlen(command)) < 0)
		return false;
	while (size < sizeof(text) - 1 &&
	       (got = read(fd, text + size, sizeof(text) - 1 - size)) > 0) {
		size += (size_t)got;
		text[size] = '\0';
		if (strstr(text, word))
			return true;
	}
	return false;
}

static void note_program(struct guest *guest, const struct sideband_comm *program)
{
	if (guest->pause.end && program->head.time > guest->pause.end)
		guest->programs += !strcmp(program->comm, PROGRAM);
}

static void count_record(struct guest *guest, const struct sideband *record)
{
	guest->losses += record->type == SIDEBAND_LOST;
	if (record->type != SIDEBAND_COMM && record->type != SIDEBAND_FORK &&
	    record->type != SIDEBAND_EXIT)
		return;
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		note_program(guest, (const struct sideband_comm *)record);
	guest->events++;
	guest->latest = record->time;
	if (guest->pause.begin && record->time - record->time_error > guest->pause.begin &&
	    (!guest->pause.end || record->time + record->time_error < guest->pause.end))
		guest->inside++;
}

static void read_ring(struct guest *guest)
{
	const struct ring_record *record;

	while ((record = ring_read(guest->ring)))
		if (record->type == RECORD_SIDEBAND)
			count_record(guest, (const struct sideband *)record->payload);
	ring_read_done(guest->ring);
}

/* Waits until an event later than TIME has a time on the host, at most 100 s. */
static bool continues(struct guest *guest, uint64_t time)
{
	for (int i = 0; i < 10000 && guest->latest <= time; i++) {
		usleep(10000);
		read_ring(guest);
	}
	return guest->latest > time;
}

static bool begin(struct guest *guest)
{
	struct agent_options options = { 0 };

	*guest = (struct guest){ .monitor = -1, .line = -1 };
	snprintf(guest->channel_path, sizeof(guest->channel_path), "build/agent-suspend-%d.channel",
		 getpid());
	snprintf(guest->monitor_path, sizeof(guest->monitor_path), "build/agent-suspend-%d.monitor",
		 getpid());
	snprintf(guest->console_path, sizeof(guest->console_path), "build/agent-suspend-%d.console",
		 getpid());
	snprintf(guest->line_path, sizeof(guest->line_path), "build/agent-suspend-%d.line",
		 getpid());
	/* NOLINTNEXTLINE(cert-env33-c): a test's own words */
	if (system("tests/rig/fetch-kernels 6.1 > /dev/null && flock build tests/rig/initrd --modules 'virtio_pci virtio_console button' "
		   "--output " INITRD
		   " build/rig/workload build/agent/kvmscope-agent > /dev/null") ||
	    ring_create(&guest->ring, 4 << 20))
		return false;
	guest->vmm = run_vmm(guest);
	options.fd = connect_to(guest->channel_path);
	guest->monitor = connect_to(guest->monitor_path);
	guest->line = connect_to(guest->line_path);
	options.ring = guest->ring;
	return options.fd >= 0 && guest->monitor >= 0 && guest->line >= 0 &&
	       !agent_start(&guest->agent, &options) &&
	       send_command(guest->monitor, "", "\"QMP\"") &&
	       send_command(guest->monitor, "{\"execute\":\"qmp_capabilities\"}\n", "\"return\"");
}

static void end(struct guest *guest, struct agent_statistics *statistics)
{
	agent_stop(guest->agent, statistics);
	kill(guest->vmm, SIGKILL);
	waitpid(guest->vmm, NULL, 0);
	close(guest->monitor);
	close(guest->line);
	ring_destroy(guest->ring);
	unlink(guest->channel_path);
	unlink(guest->monitor_path);
	unlink(guest->console_path);
	unlink(guest->line_path);
}

static void stop_and_go_on(struct guest *guest, bool clock_stops)
{
	struct agent_statistics statistics;
	int status;

	read_ring(guest);
	if (clock_stops) {
		CHECK(send_command(guest->monitor, "{\"execute\":\"stop\"}\n", "\"return\""));
	} else {
		kill(guest->vmm, SIGSTOP);
		waitpid(guest->vmm, &status, WUNTRACED);
	}
	guest->pause = (struct pause){ .begin = now() };
	usleep(1500000);
	guest->pause.end = now();
	if (clock_stops)
		CHECK(send_command(guest->monitor, "{\"execute\":\"cont\"}\n", "\"return\""));
	else
		kill(guest->vmm, SIGCONT);
	CHECK(continues(guest, guest->pause.end + SECOND));
	CHECK_EQUAL(guest->inside, 0);
	agent_statistics(guest->agent, &statistics);
	printf("%s stopped: %lu events, %lu sessions, %lu jumps, %lu of the events lost, error now %.1f ms\n",
	       clock_stops ? "guest" : "process", guest->events, (unsigned long)statistics.sessions,
	       (unsigned long)statistics.clock_jumps, (unsigned long)statistics.lost,
	       (double)statistics.clock_error / 1e6);
	if (clock_stops)
		CHECK(statistics.sessions > 1 && guest->losses > 0);
}

/*
 * How a guest suspends, as written to /sys/power/state; who reports it and in which words after its
 * programs' last moment (kernel/power/process.c, freeze_kernel_threads()); and what wakes it.
 */
struct suspend {
	const char *state, *wake;
	bool by_monitor, clock_stops;
	const char *message;
};

static const struct suspend to_memory = {
	.state = "mem\n",
	.by_monitor = true,
	.clock_stops = true,
	.message = "\"SUSPEND\"",
	.wake = "{\"execute\":\"system_wakeup\"}\n",
};
static const struct suspend to_idle = {
	.state = "freeze\n",
	/* Its processors only idle: without ACPI states (drivers/cpuidle) its clock continues. */
	.clock_stops = false,
	.message = "Freezing remaining freezable tasks",
	.wake = "{\"execute\":\"system_powerdown\"}\n", /* a button that nothing in the guest
							 * handles */
};

/*
 * The guest's programs are frozen, its devices are suspended, and its kernel continues where it
 * was.
 */
static void suspend_and_wake(struct guest *guest, const struct suspend *suspend)
{
	struct agent_statistics before, statistics;
	/* Earlier output is discarded. */
	int console = connect_to(guest->console_path);
	bool suspended;

	agent_statistics(guest->agent, &before);
	read_ring(guest);
	guest->pause = (struct pause){ 0 };
	guest->programs = 0;
	CHECK_EQUAL(write(guest->line, suspend->state, strlen(suspend->state)),
		    (ssize_t)strlen(suspend->state));
	suspended =
		send_command(suspend->by_monitor ? guest->monitor : console, "", suspend->message);
	close(console);
	if (!suspended) {
		FAIL_TEST("the guest does not suspend");
		return;
	}
	guest->pause = (struct pause){ .begin = now() };
	usleep(1500000);
	guest->pause.end = now();
	CHECK(send_command(guest->monitor, suspend->wake, "\"return\""));
	CHECK(continues(guest, guest->pause.end + SECOND));
	CHECK_EQUAL(guest->inside, 0);
	agent_statistics(guest->agent, &statistics);
	printf("guest suspended to %.*s: %lu events, %lu of them programs, %lu sessions, %lu jumps, %lu of the events lost, "
	       "error now %.1f ms\n",
	       (int)strcspn(suspend->state, "\n"), suspend->state, guest->events, guest->programs,
	       (unsigned long)statistics.sessions, (unsigned long)statistics.clock_jumps,
	       (unsigned long)statistics.lost, (double)statistics.clock_error / 1e6);
	CHECK(!suspend->clock_stops || statistics.sessions > before.sessions);
	CHECK(statistics.open);
	CHECK(guest->programs > 0);
}

TEST(agent_suspend, no_event_is_placed_in_a_pause_of_the_guest)
{
	struct agent_statistics statistics;
	struct guest guest;

	REQUIRE(begin(&guest));
	if (continues(&guest, now() + SECOND)) {
		stop_and_go_on(&guest, false);
		stop_and_go_on(&guest, true);
		suspend_and_wake(&guest, &to_memory);
		suspend_and_wake(&guest, &to_idle);
	} else {
		FAIL_TEST("the guest agent reports nothing");
	}
	end(&guest, &statistics);
	CHECK(guest.events > 0);
}
