/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of watching many VMs: CPU time and memory of one kvmscoped with 64 idle VMs at 99 Hz.
 * The VMs are small guests of kvmscope run that wake up 4 times per second; kvmscoped takes them
 * for libvirt domains because their files are in a libvirt directory.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/unconst.h"
#include "tests/bench/bench.h"

#define VMS_MAX  64
#define VMS      bench_size(VMS_MAX, 4)
#define IDLE_S   bench_size(5, 1) /* until the guests are idle */
#define ATTACH_S 120              /* limit until all VMs are sampled */
#define POLL_US  20000
/* The time until kvmscoped has noticed that all VMs are idle. */
#define SETTLE_S  bench_size(15, 1)
#define MEASURE_S bench_size(30, 2)
#define DIRECTORY "build/bench/scale"
#define LIBVIRT   DIRECTORY "/libvirt"
#define LOG       DIRECTORY "/log"
#define CONF      DIRECTORY "/conf"

/* The bounds. */
static const struct bench_bound cpu_bound = { BENCH_MOST, 2 };     /* % of a core */
static const struct bench_bound memory_bound = { BENCH_MOST, 64 }; /* MiB */

static pid_t vms[VMS_MAX];

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fputs(text, file) < 0 || fclose(file)) {
		perror(path);
		exit(1);
	}
}

static void become(const char *const *arguments, const char *output)
{
	int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int none = open("/dev/null", O_RDONLY | O_CLOEXEC);

	dup2(none, 0);
	dup2(fd, 1);
	dup2(fd, 2);
	execv(arguments[0], unconst(arguments));
	_exit(1);
}

/* The process of a domain holds a lock on its pid file until it ends. */
static void run_vm(int number)
{
	const char *const arguments[] = {
		"build/kvmscope", "run", "--no-profile", "--kernel", "build/guests/guest.elf",
		"--mem",          "16M", "--timeout",    "230",      "--append",
		"program=idle",   NULL
	};
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[64];
	int fd;

	snprintf(path, sizeof(path), LIBVIRT "/vm-%d.pid", number);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || dprintf(fd, "%d\n", getpid()) < 0 || fcntl(fd, F_SETLK, &lock))
		_exit(1);
	become(arguments, "/dev/null");
}

static void start_vm(int number)
{
	char path[64], status[256];

	vms[number] = fork();
	if (!vms[number])
		run_vm(number);
	snprintf(path, sizeof(path), LIBVIRT "/vm-%d.xml", number);
	snprintf(
		status, sizeof(status),
		"<domstatus state='running' pid='%d'><domain type='kvm'><name>vm-%d</name></domain></domstatus>\n",
		vms[number], number);
	write_file(path, status);
}

static pid_t start_daemon(const char *backend)
{
	const char *const arguments[] = {
		"build/kvmscoped",     "--config", CONF, "--run-directory", DIRECTORY "/run",
		"--libvirt-directory", LIBVIRT,    NULL
	};
	char conf[512];
	pid_t pid;

	snprintf(conf, sizeof(conf),
		 "[domains]\nprofile = on\nfrequency = 99\nbackend = %s\n"
		 "[recordings]\ndirectory = %s/" DIRECTORY
		 "/recordings\nrotate = 15s\n[metrics]\nlisten = off\n",
		 backend, getenv("PWD"));
	write_file(CONF, conf);
	pid = fork();
	if (!pid)
		become(arguments, LOG);
	return pid;
}

/* The number of domains that kvmscoped reports as attached. */
static int count_attached(void)
{
	FILE *file = fopen(LOG, "r");
	char line[1024];
	int count = 0;

	while (file && fgets(line, sizeof(line), file))
		count += strstr(line, "domain vm-") && strstr(line, " at 99 Hz");
	if (file)
		fclose(file);
	return count;
}

/* MiB, with a proportional share of libraries that others have mapped as well. */
static double memory(pid_t pid)
{
	char path[64], line[256];
	double kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "Pss:", 4))
			kib = atof(line + 4);
	if (file)
		fclose(file);
	return kib / 1024;
}

static void measure(pid_t daemon, const char *backend)
{
	uint64_t cpu, begun;
	clockid_t clock;
	char what[96];

	clock_getcpuclockid(daemon, &clock);
	sleep(SETTLE_S);
	cpu = bench_time(clock);
	begun = bench_time(CLOCK_MONOTONIC);
	sleep(MEASURE_S);
	cpu = bench_time(clock) - cpu;
	snprintf(what, sizeof(what), "scale: CPU time of kvmscoped for %d idle VMs at 99 Hz, by %s",
		 VMS, backend);
	bench_print_bound(what, 100.0 * (double)cpu / (double)(bench_time(CLOCK_MONOTONIC) - begun),
			  "% of a core", cpu_bound);
	snprintf(what, sizeof(what), "scale: memory of kvmscoped for %d idle VMs, by %s", VMS,
		 backend);
	bench_print_bound(what, memory(daemon), "MiB", memory_bound);
}

static void run(const char *backend)
{
	pid_t daemon = start_daemon(backend);
	uint64_t begun = bench_time(CLOCK_MONOTONIC);
	bool ended = false;

	for (int i = 0; i < ATTACH_S * (1000000 / POLL_US) && count_attached() < VMS && !ended;
	     i++) {
		usleep(POLL_US);
		ended = waitpid(daemon, NULL, WNOHANG);
	}
	if (ended || count_attached() < VMS) {
		bench_fail("scale: kvmscoped on 64 idle VMs", "not all VMs are sampled, see " LOG);
	} else {
		bench_print("scale: attaching to 64 VMs at once",
			    (double)(bench_time(CLOCK_MONOTONIC) - begun) / 1e9, "s");
		measure(daemon, backend);
	}
	if (!ended) {
		kill(daemon, SIGTERM);
		waitpid(daemon, NULL, 0);
	}
}

static void end_vms(void)
{
	for (int i = 0; i < VMS; i++)
		kill(vms[i], SIGTERM);
	for (int i = 0; i < VMS; i++)
		waitpid(vms[i], NULL, 0);
}

int main(int argc, char **argv)
{
	if (access("/dev/kvm", R_OK | W_OK)) {
		bench_skip("scale: kvmscoped on 64 idle VMs", "no /dev/kvm");
		return 0;
	}
	if (system("rm -rf " DIRECTORY " && mkdir -p " LIBVIRT))
		return 1;
	for (int i = 0; i < VMS; i++)
		start_vm(i);
	sleep(IDLE_S);
	run(argc > 1 ? argv[1] : "auto");
	end_vms();
	return bench_status();
}
