/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that can be identified by their stacks: each runs in its own function run_NAME, from which
 * it makes its system calls directly, and is called "NAME-TID". So a call chain with run_NAME
 * determines the task's name, which contains its ID.
 *
 *	tasks SECONDS
 *
 *	alpha: in user code
 *	beta: in system calls
 *	ping, pong: switch to each other all the time
 *	thread: two more threads of beta's process
 *	program: another program, by execve
 *	brief: processes that run for 5 ms, one after the other
 *	jailed: a copy of this program that runs in a chroot
 *	layered: a copy in an overlay that only its mount namespace has
 *	deleted: a copy whose file is deleted
 *	memory: a copy in a memfd
 *
 * Each copy has its own build ID, so that nothing is known about it from another copy.
 *
 * All but ping and pong have their own cgroup: "/tasks.slice/NAME.scope", that of the process.
 *
 * For the copies it prints "tasks: NAME maps PATH", as in /proc/PID/maps.
 *
 * Static, and built with frame pointers, so that chains can be walked.
 */
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "/tmp/program"
#define CGROUPS "/tmp/cgroup"
#define JAIL    "/tmp/jail"
#define LAYERED "/tmp/layers/merged/layered"
#define DELETED "/tmp/deleted"

static double seconds;

/* Inline: the instruction after it is in the function that identifies the task. */
static inline __attribute__((always_inline)) long system_call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) double clock_of(clockid_t clock)
{
	struct timespec time;

	system_call(SYS_clock_gettime, clock, (long)&time, 0);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline __attribute__((always_inline)) void compute(unsigned int rounds)
{
	volatile uint32_t hash = 2166136261u;

	for (unsigned int i = 0; i < rounds; i++)
		hash = (hash ^ i) * 16777619u;
}

static void set_name(const char *name)
{
	char own[16];

	snprintf(own, sizeof(own), "%s-%ld", name, syscall(SYS_gettid));
	prctl(PR_SET_NAME, own);
}

/* Repeats WORK until SECONDS are over. */
#define TASK(name, work)                                                                           \
	__attribute__((noinline)) void run_##name(double until)                                    \
	{                                                                                          \
		static __thread unsigned char buffer[16384] __attribute__((unused));               \
                                                                                                   \
		while (clock_of(CLOCK_MONOTONIC) < until)                                          \
			for (int i = 0; i < 50; i++) {                                             \
				work;                                                              \
			}                                                                          \
	}

TASK(alpha, compute(2000))
TASK(beta, system_call(SYS_getrandom, (long)buffer, sizeof(buffer), 0))
TASK(thread, compute(500); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(ping, compute(20); system_call(SYS_sched_yield, 0, 0, 0))
TASK(pong, compute(20); system_call(SYS_sched_yield, 0, 0, 0))
TASK(program, compute(1000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(jailed, compute(20000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(layered, compute(20000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(deleted, compute(20000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(memory, compute(20000); system_call(SYS_getrandom, (long)buffer, 4096, 0))
TASK(brief, compute(100); system_call(SYS_getrandom, (long)buffer, 1024, 0))

static double now(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

static void fail(const char *what)
{
	fprintf(stderr, "tasks: %s: %m\n", what);
	_exit(1);
}

static void make_cgroups(void)
{
	mkdir(CGROUPS, 0755);
	if (mount("cgroup2", CGROUPS, "cgroup2", 0, NULL) || mkdir(CGROUPS "/tasks.slice", 0755))
		fail(CGROUPS);
}

static void enter_cgroup(const char *name)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), CGROUPS "/tasks.slice/%s.scope", name);
	mkdir(path, 0755);
	strcat(path, "/cgroup.procs");
	file = open(path, O_WRONLY);
	if (file < 0 || write(file, "0", 1) != 1)
		fail(path);
	close(file);
}

static void run(const char *name, void (*task)(double until))
{
	set_name(name);
	task(now() + seconds);
}

static void start(const char *name, void (*task)(double until))
{
	if (fork())
		return;
	if (strcmp(name, "alpha") == 0)
		enter_cgroup(name);
	run(name, task);
	_exit(0);
}

static void *thread(void *unused)
{
	(void)unused;
	run("thread", run_thread);
	return NULL;
}

static void start_threads(void)
{
	pthread_t threads[2];

	if (fork())
		return;
	enter_cgroup("beta");
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, thread, NULL))
			_exit(1);
	run("beta", run_beta);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static void start_program(const char *argument)
{
	unlink(PROGRAM);
	if (symlink("/proc/self/exe", PROGRAM) || fork())
		return;
	enter_cgroup("program");
	execl(PROGRAM, PROGRAM, argument, (char *)NULL);
	_exit(1);
}

/* The file offset of our build ID; the first segment is mapped from offset 0. */
static off_t build_id_offset(void)
{
	const Elf64_Phdr *header = (const Elf64_Phdr *)getauxval(AT_PHDR);
	const unsigned char *start = (const unsigned char *)header - sizeof(Elf64_Ehdr);

	for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++) {
		const Elf64_Nhdr *note = (const Elf64_Nhdr *)(start + header[i].p_offset);

		if (header[i].p_type == PT_NOTE && note->n_type == NT_GNU_BUILD_ID)
			return (off_t)(header[i].p_offset + sizeof(*note) + note->n_namesz);
	}
	fail("no build id");
	return 0;
}

/* The copy's build ID differs from ours in the first four bytes, which are taken from NAME. */
static void copy_self(const char *name, int to)
{
	int from = open("/proc/self/exe", O_RDONLY);
	struct stat status;

	if (from < 0 || to < 0 || fstat(from, &status) ||
	    sendfile(to, from, NULL, (size_t)status.st_size) != status.st_size ||
	    pwrite(to, name, 4, build_id_offset()) != 4)
		fail(name);
	close(from);
}

static void copy_self_to(const char *name, const char *path)
{
	int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0755);

	copy_self(name, file);
	close(file);
}

/* The file of the first mapping of PID, when it is no longer ours, which may take a while. */
static void print_maps(const char *name, pid_t pid, const char *own)
{
	char path[64], line[512], file[256];
	FILE *maps;

	for (int i = 0; i < 3000; i++, usleep(20000)) {
		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
		maps = fopen(path, "r");
		*file = '\0';
		if (maps && fgets(line, sizeof(line), maps))
			sscanf(line, "%*s %*s %*s %*s %*s %255[^\n]", file);
		if (maps)
			fclose(maps);
		if (*file == '/' && strcmp(file, own) != 0 && strcmp(file, DELETED) != 0)
			break;
	}
	printf("tasks: %s maps %s\n", name, file);
	fflush(stdout);
}

static void start_jailed(const char *argument)
{
	pid_t pid;

	mkdir(JAIL, 0755);
	copy_self_to("jailed", JAIL "/inside");
	pid = fork();
	if (pid) {
		print_maps("jailed", pid, "/bin/tasks");
		return;
	}
	enter_cgroup("jailed");
	if (chroot(JAIL) || chdir("/"))
		fail("chroot");
	execl("/inside", "jailed", argument, (char *)NULL);
	fail("/inside");
}

static void mount_overlay(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("overlay", "/tmp/layers/merged", "overlay", 0,
		  "lowerdir=/tmp/layers/lower,upperdir=/tmp/layers/upper,workdir=/tmp/layers/work"))
		fail("overlay");
}

static void start_layered(const char *argument)
{
	static const char *const directories[] = { "/tmp/layers", "/tmp/layers/lower",
						   "/tmp/layers/upper", "/tmp/layers/work",
						   "/tmp/layers/merged" };
	pid_t pid;

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		mkdir(directories[i], 0755);
	copy_self_to("layered", "/tmp/layers/lower/layered");
	pid = fork();
	if (pid) {
		print_maps("layered", pid, "/bin/tasks");
		return;
	}
	enter_cgroup("layered");
	mount_overlay();
	execl(LAYERED, "layered", argument, (char *)NULL);
	fail(LAYERED);
}

static void start_deleted(const char *argument)
{
	pid_t pid;

	copy_self_to("deleted", DELETED);
	pid = fork();
	if (pid) {
		print_maps("deleted", pid, "/bin/tasks");
		return;
	}
	enter_cgroup("deleted");
	execl(DELETED, "deleted", argument, (char *)NULL);
	fail(DELETED);
}

static void start_memory(const char *argument)
{
	char *const arguments[] = { "memory", (char *)(uintptr_t)argument, NULL };
	int file = memfd_create("tasks", 0);
	char path[32];
	pid_t pid;

	copy_self("memory", file);
	pid = fork();
	if (pid) {
		close(file);
		print_maps("memory", pid, "/bin/tasks");
		return;
	}
	enter_cgroup("memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	execv(path, arguments);
	fail(path);
}

/* The work of a copy of this program, by its argument. */
static bool run_as_copy(const char *name)
{
	if (!strcmp(name, "deleted"))
		unlink(DELETED);
	if (!strcmp(name, PROGRAM))
		run("program", run_program);
	else if (!strcmp(name, "jailed"))
		run("jailed", run_jailed);
	else if (!strcmp(name, "layered"))
		run("layered", run_layered);
	else if (!strcmp(name, "deleted"))
		run("deleted", run_deleted);
	else if (!strcmp(name, "memory"))
		run("memory", run_memory);
	else
		return false;
	return true;
}

static void storm(void)
{
	double end = now() + seconds;

	if (fork())
		return;
	enter_cgroup("brief");
	while (now() < end) {
		if (!fork()) {
			set_name("brief");
			run_brief(now() + 0.005);
			_exit(0);
		}
		wait(NULL);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	seconds = argc > 1 ? atof(argv[1]) : 0;
	if (seconds <= 0) {
		fprintf(stderr, "usage: tasks SECONDS\n");
		return 2;
	}
	if (run_as_copy(argv[0]))
		return 0;
	make_cgroups();
	start("alpha", run_alpha);
	start("ping", run_ping);
	start("pong", run_pong);
	start_threads();
	start_program(argv[1]);
	storm();
	start_jailed(argv[1]);
	start_layered(argv[1]);
	start_deleted(argv[1]);
	start_memory(argv[1]);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
