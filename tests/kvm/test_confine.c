/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the threads of kvmscope run may do: a debugger makes each of them call what a guest that has
 * taken it over would call.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/kvm.h>
#include <linux/landlock.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/disk/sandbox_work.h"

#define RUN                                                                                        \
	"run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 -F 1 --console none -o /dev/null "   \
	"--append program=shares_rounds=1000000_chunk=1000000"
#define FOREIGN "/etc/passwd"
/* A result besides those of system calls: the seccomp filter stopped it. */
#define TRAPPED (-4096)
/* Bytes below RSP that a leaf function may use, and some more. */
#define RED_ZONE 512

static const struct call {
	const char *name;
	long number;
	unsigned long long arguments[3];
} calls[] = {
	{ "execve", SYS_execve, { 0 } },
	{ "execveat", SYS_execveat, { 0 } },
	{ "fork", SYS_fork, { 0 } },
	{ "vfork", SYS_vfork, { 0 } },
	{ "clone of a process", SYS_clone, { SIGCHLD } },
	{ "ptrace", SYS_ptrace, { PTRACE_ATTACH, 1 } },
	{ "process_vm_readv", SYS_process_vm_readv, { 1 } },
	/* signal 0 */
	{ "kill", SYS_kill, { 1 } },
	{ "tgkill of another process", SYS_tgkill, { 1, 1 } },
	{ "tkill", SYS_tkill, { 1 } },
	{ "rt_sigqueueinfo", SYS_rt_sigqueueinfo, { 1 } },
	{ "pidfd_open", SYS_pidfd_open, { 1 } },
	{ "pidfd_send_signal", SYS_pidfd_send_signal, { -1ull } },
	{ "fcntl F_SETOWN", SYS_fcntl, { -1ull, F_SETOWN, 1 } },
	{ "prlimit64", SYS_prlimit64, { 1 } },
	{ "setpriority", SYS_setpriority, { 0, 1 } },
	{ "sched_setaffinity", SYS_sched_setaffinity, { 1 } },
	{ "socket", SYS_socket, { AF_INET, SOCK_STREAM } },
	{ "socket AF_UNIX", SYS_socket, { AF_UNIX, SOCK_STREAM } },
	{ "socketpair", SYS_socketpair, { AF_UNIX, SOCK_STREAM } },
	{ "connect", SYS_connect, { 0 } },
	{ "truncate", SYS_truncate, { 0 } },
	{ "openat to truncate", SYS_openat, { -1ull, 0, O_RDONLY | O_TRUNC } },
	{ "open", SYS_open, { 0 } },
	{ "openat2", SYS_openat2, { 0 } },
	{ "chmod", SYS_chmod, { 0, 04755 } },
	{ "fchmod to setuid", SYS_fchmod, { -1ull, 04755 } },
	{ "setxattr", SYS_setxattr, { 0 } },
	{ "mmap to execute", SYS_mmap, { 0, 4096, PROT_READ | PROT_EXEC } },
	{ "mprotect to execute", SYS_mprotect, { 0, 4096, PROT_READ | PROT_EXEC } },
	{ "pkey_mprotect", SYS_pkey_mprotect, { 0 } },
	{ "prctl PR_SET_DUMPABLE", SYS_prctl, { PR_SET_DUMPABLE, 1 } },
	/* The kernel ignores the upper half. */
	{ "ioctl TIOCSTI", SYS_ioctl, { -1ull, (1ull << 32) | TIOCSTI } },
	{ "ioctl KVM_CREATE_VM", SYS_ioctl, { -1ull, KVM_CREATE_VM } },
	{ "bpf to attach a program", SYS_bpf, { BPF_PROG_ATTACH } },
	{ "bpf to load a program", SYS_bpf, { BPF_PROG_LOAD } },
	{ "mount", SYS_mount, { 0 } },
	{ "unshare", SYS_unshare, { 0 } },
	{ "setresuid", SYS_setresuid, { 0 } },
	{ "finit_module", SYS_finit_module, { 0 } },
	{ "io_uring_setup", SYS_io_uring_setup, { 1 } },
	/* It is harmless, but on no list. */
	{ "getppid", SYS_getppid, { 0 } },
};

/* Parsers of attach may read: these are harmless for them. */
static bool is_parsing(long number)
{
	return number == SYS_prlimit64 || number == SYS_open || number == SYS_getppid;
}

/* Of a thread that ptrace has stopped and that is in a system call. */
static void stop(pid_t thread, struct user_regs_struct *registers)
{
	int status;

	REQUIRE_EQUAL(ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACESYSGOOD), 0);
	REQUIRE_EQUAL(ptrace(PTRACE_INTERRUPT, thread, 0, 0), 0);
	REQUIRE_EQUAL(waitpid(thread, &status, __WALL), thread);
	REQUIRE(WIFSTOPPED(status));
	REQUIRE_EQUAL(ptrace(PTRACE_GETREGS, thread, 0, registers), 0);
}

static void write_text(pid_t thread, unsigned long long address, const char *text)
{
	uint64_t words[4] = { 0 };

	memcpy(words, text, strlen(text) + 1);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		REQUIRE_EQUAL(ptrace(PTRACE_POKEDATA, thread, address + 8 * i, words[i]), 0);
}

/* Continues THREAD by REQUEST until it stops for SIGNAL; others, such as kicks, are dropped. */
static void run_until(pid_t thread, enum __ptrace_request request, int signal)
{
	int status = 0;

	for (int tries = 0; tries < 100; tries++) {
		CHECK_EQUAL(ptrace(request, thread, 0, 0), 0);
		CHECK_EQUAL(waitpid(thread, &status, __WALL), thread);
		if (!WIFSTOPPED(status) || WSTOPSIG(status) == signal)
			break;
	}
	CHECK(WIFSTOPPED(status));
}

#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */

/* Makes the stopped THREAD call NUMBER by the instruction at SYSCALL. Its result, or TRAPPED. */
static long inject(pid_t thread, unsigned long long syscall,
		   const struct user_regs_struct *registers, long number,
		   const unsigned long long *arguments)
{
	struct user_regs_struct changed = *registers, after = { 0 };

	changed.rip = syscall;
	changed.rax = (unsigned long long)number;
	changed.orig_rax = -1ull; /* no call to restart */
	changed.rdi = arguments[0];
	changed.rsi = arguments[1];
	changed.rdx = arguments[2];
	changed.r10 = 0;
	CHECK_EQUAL(ptrace(PTRACE_SETREGS, thread, 0, &changed), 0);
	run_until(thread, PTRACE_SYSCALL, SYSCALL_STOP);
	run_until(thread, PTRACE_SYSCALL, SYSCALL_STOP);
	CHECK_EQUAL(ptrace(PTRACE_GETREGS, thread, 0, &after), 0);
	/* seccomp restores RAX and sends SIGSYS. */
	if (after.rax != (unsigned long long)number)
		return (long)after.rax;
	run_until(thread, PTRACE_CONT, SIGSYS);
	return TRAPPED;
}

static long open_foreign(pid_t thread, unsigned long long syscall,
			 const struct user_regs_struct *registers)
{
	unsigned long long path = (registers->rsp - RED_ZONE) & ~7ull;

	write_text(thread, path, FOREIGN);
	return inject(thread, syscall, registers, SYS_openat,
		      (const unsigned long long[]){ (unsigned long long)AT_FDCWD, path, O_RDONLY });
}

static bool has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 2;
}

/* Its filter refuses calls with REFUSAL: TRAPPED, or a negative errno. */
static void check_thread(pid_t thread, const char *name, unsigned long long syscall, long refusal)
{
	struct user_regs_struct registers;
	long result;

	stop(thread, &registers);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		result = inject(thread, syscall, &registers, calls[i].number, calls[i].arguments);
		if (result != refusal && (refusal == TRAPPED || !is_parsing(calls[i].number)))
			FAIL_TEST("%s may call %s: %ld", name, calls[i].name, result);
	}
	result = open_foreign(thread, syscall, &registers);
	if (has_landlock() && result != -EACCES)
		FAIL_TEST("%s may open " FOREIGN ": %ld", name, result);
	ptrace(PTRACE_SETREGS, thread, 0, &registers);
	ptrace(PTRACE_DETACH, thread, 0, 0);
}

/* An instruction SYSCALL of the program: the main thread waits in poll(). */
static unsigned long long find_syscall(pid_t pid)
{
	struct user_regs_struct registers;
	unsigned long long at;

	stop(pid, &registers);
	at = registers.rip - 2;
	CHECK_EQUAL(ptrace(PTRACE_PEEKTEXT, pid, at, 0) & 0xffff, 0x050f);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return at;
}

/* The thread of PID called NAME, or 0. */
static pid_t find_thread(pid_t pid, const char *name)
{
	char path[300], comm[32];
	struct dirent *entry;
	pid_t found = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && !found && (entry = readdir(tasks))) {
		int directory = dirfd(tasks), fd;
		ssize_t size;

		snprintf(path, sizeof(path), "%s/comm", entry->d_name);
		fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
		size = fd >= 0 ? read(fd, comm, sizeof(comm) - 1) : -1;
		if (size > 0 && !strncmp(comm, name, strlen(name)))
			found = atoi(entry->d_name);
		if (fd >= 0)
			close(fd);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

/* 0, after a failure: there is none within 30 s. */
static pid_t wait_for_thread(pid_t pid, const char *name)
{
	pid_t thread = 0;

	for (int tries = 0; tries < 600 && !thread; tries++) {
		thread = find_thread(pid, name);
		if (!thread)
			usleep(50000);
	}
	if (!thread)
		FAIL_TEST("there is no thread %s", name);
	return thread;
}

static void start(struct program *program, const char *arguments)
{
	program_start(program, arguments);
	REQUIRE(wait_for_thread(program->pid, "vCPU 0") > 0);
	usleep(200000); /* it enters the guest */
}

/* A directory for one test. No '_' in it: see program.h. */
static void make_directory(char path[64])
{
	char *made;

	do {
		strcpy(path, "/tmp/kvmscope-confine-XXXXXX");
		made = mkdtemp(path);
		REQUIRE(made);
	} while (strchr(path, '_') && !rmdir(path));
}

static void remove_directory(const char *path)
{
	free(command_output(NULL, "rm -r %s", path));
}

static void check_threads(pid_t pid, const char *const *names, size_t count)
{
	unsigned long long syscall = find_syscall(pid);

	for (size_t i = 0; i < count; i++) {
		pid_t thread = wait_for_thread(pid, names[i]);

		if (thread)
			check_thread(thread, names[i], syscall, TRAPPED);
	}
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

TEST(confine, no_thread_may_leave_its_sandbox)
{
	static const char *const names[] = { "vCPU 0", "vCPU 1",  "devices", "collector",
					     "parser", "control", "kvmscope" };
	struct program program;

	GUEST_REQUIRED();
	start(&program, RUN " --cpus 2");
	check_threads(program.pid, names, COUNT(names));
	/* The guest is not disturbed. */
	kill(program.pid, SIGTERM);
	program_wait(&program);
	CHECK_EQUAL(program.status, 0);
	CHECK(strstr(program.text, " samples in "));
}

/* The children of PID that have confined themselves; COUNT after 30 s at the latest, or else a
 * failure. */
static void find_children(pid_t pid, pid_t *children, size_t count)
{
	size_t found = 0;

	for (int tries = 0; tries < 600 && found != count; tries++) {
		char *list = command_output(
			NULL,
			"for child in $(cat /proc/%d/task/%d/children); do "
			"grep -qs 'Seccomp:.2' /proc/$child/status && echo $child; done",
			pid, pid);
		char *at = list, *next;

		for (found = 0; found < count; found++, at = next) {
			children[found] = (pid_t)strtol(at, &next, 10);
			if (next == at)
				break;
		}
		free(list);
		usleep(50000);
	}
	REQUIRE_EQUAL(found, count);
}

/* The processes that parse what the guest has in memory (image_parser.h). */
TEST(confine, no_parser_of_attach_may_leave_its_sandbox)
{
	struct program vm, tool;
	char arguments[256];
	pid_t parsers[2];

	GUEST_REQUIRED();
	if (!sandbox_work_is_possible())
		SKIP("parsers are threads in builds with sanitizers");
	start(&vm, RUN " --no-sandbox --no-profile");
	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --verbose --no-buildid-cache --vmlinux " GUEST_IMAGE
		 " -o /dev/null",
		 vm.pid);
	program_start(&tool, arguments);
	REQUIRE(program_wait_for(&tool, "vCPU 0 is thread"));
	find_children(tool.pid, parsers, COUNT(parsers));
	for (size_t i = 0; i < COUNT(parsers); i++)
		check_thread(parsers[i], "a parser", find_syscall(parsers[i]), -EPERM);
	/* The others are not disturbed. */
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	program_wait(&tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, " samples of the guest"));
}

#define SAMPLED_BY "run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 --console none --sampler "

static bool has_bpf(void)
{
	struct program program;

	program_run(&program, SAMPLED_BY "bpf --duration 1 -o /dev/null --append program=spin");
	return !program.status;
}

TEST(confine, no_thread_of_an_option_may_leave_its_sandbox)
{
	static const char *const names[] = { "agent", "watchdog" }, *const attach[] = { "attach" };
	char directory[64], arguments[512];
	struct program program;
	bool bpf;

	GUEST_REQUIRED();
	bpf = has_bpf();
	make_directory(directory);
	snprintf(arguments, sizeof(arguments),
		 SAMPLED_BY "%s --agent=guest --flight 1s --trigger stuck=60000 -o %s/perf.data "
			    "--append program=shares_rounds=1000000_chunk=1000000",
		 bpf ? "bpf" : "kick", directory);
	start(&program, arguments);
	check_threads(program.pid, names, COUNT(names));
	if (bpf)
		check_threads(program.pid, attach, 1);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	CHECK_EQUAL(program.status, 0);
	remove_directory(directory);
}

TEST(confine, without_a_sandbox_the_calls_are_possible)
{
	struct user_regs_struct registers;
	struct program program;
	unsigned long long syscall;
	pid_t thread;

	GUEST_REQUIRED();
	start(&program, RUN " --no-sandbox");
	syscall = find_syscall(program.pid);
	thread = wait_for_thread(program.pid, "devices");
	stop(thread, &registers);
	CHECK(inject(thread, syscall, &registers, SYS_socket,
		     (const unsigned long long[]){ AF_INET, SOCK_STREAM, 0 }) >= 0);
	CHECK(open_foreign(thread, syscall, &registers) >= 0);
	ptrace(PTRACE_SETREGS, thread, 0, &registers);
	ptrace(PTRACE_DETACH, thread, 0, 0);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	CHECK(strstr(program.text, "kvmscope: --no-sandbox: a guest that takes over a thread"));
}

/* The descriptor of PID for the clock of its first vCPU; -1: none. */
static int find_event(pid_t pid)
{
	char *fd = command_output(NULL,
				  "ls -l /proc/%d/fd | sed -n 's/.* \\([0-9]*\\) -> "
				  "anon_inode:.perf_event.*/\\1/p' | head -n 1",
				  pid);
	int found = *fd ? atoi(fd) : -1;

	free(fd);
	return found;
}

static bool ends_within(pid_t child, unsigned int tenths)
{
	bool ended = false;

	for (; tenths && !ended; tenths--) {
		usleep(100000);
		ended = waitpid(child, NULL, WNOHANG) == child;
	}
	return ended;
}

/* Makes THREAD, which runs a vCPU, direct the signals of its clock to VICTIM. */
static void direct_signals(const struct program *program, pid_t thread, pid_t victim)
{
	const struct f_owner_ex owner = { .type = F_OWNER_PID, .pid = victim };
	unsigned long long syscall = find_syscall(program->pid), at;
	struct user_regs_struct registers;
	uint64_t word;

	stop(thread, &registers);
	at = (registers.rsp - RED_ZONE) & ~7ull;
	memcpy(&word, &owner, sizeof(word));
	CHECK_EQUAL(ptrace(PTRACE_POKEDATA, thread, at, word), 0);
	CHECK_EQUAL(inject(thread, syscall, &registers, SYS_fcntl,
			   (const unsigned long long[]){
				   (unsigned long long)find_event(program->pid), F_SETOWN_EX, at }),
		    0);
	ptrace(PTRACE_SETREGS, thread, 0, &registers);
	ptrace(PTRACE_DETACH, thread, 0, 0);
}

/*
 * A vCPU thread may direct the signals of its clock, 1000 for each second of its CPU time. True if
 * they then kill VICTIM in one of TRIES: a thread that is just starting its clock directs them to
 * itself again.
 */
static bool directs_signals_to(pid_t victim, const char *options, unsigned int tries)
{
	struct program program;
	bool ended = false;
	pid_t thread;

	start(&program, options);
	thread = wait_for_thread(program.pid, "vCPU 0");
	for (; tries && !ended; tries--) {
		direct_signals(&program, thread, victim);
		ended = ends_within(victim, 10);
	}
	kill(program.pid, SIGTERM);
	program_wait(&program);
	return ended;
}

/* Signals end it, whatever tests before this one did with theirs. */
static pid_t start_victim(void)
{
	sigset_t none;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child)
		return child;
	for (int i = 1; i <= SIGRTMAX; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (;;)
		pause();
}

TEST(confine, signals_of_a_clock_reach_no_other_process)
{
	pid_t victim;

	GUEST_REQUIRED();
	if (!(syscall(SYS_landlock_create_ruleset, NULL, 0, 1u << 1) & 1 << 1))
		SKIP("needs Linux 6.15, whose Landlock confines signals");
	victim = start_victim();
	if (directs_signals_to(victim, RUN " -F 1000 --sampler kick", 2)) {
		FAIL_TEST("signals of a confined thread reached another process");
	} else if (!directs_signals_to(victim, RUN " -F 1000 --sampler kick --no-sandbox", 30)) {
		FAIL_TEST("without the sandbox they did not, either");
		kill(victim, SIGKILL);
		waitpid(victim, NULL, 0);
	}
}

static void check_violation(const char *name)
{
	struct user_regs_struct registers;
	struct program program;
	unsigned long long syscall;
	char message[200];
	pid_t thread;

	start(&program, RUN);
	syscall = find_syscall(program.pid);
	thread = wait_for_thread(program.pid, name);
	stop(thread, &registers);
	CHECK_EQUAL(inject(thread, syscall, &registers, SYS_execve,
			   (const unsigned long long[]){ 0, 0, 0 }),
		    TRAPPED);
	ptrace(PTRACE_DETACH, thread, 0, SIGSYS);
	program_wait(&program);
	CHECK_EQUAL(program.status, 1);
	snprintf(message, sizeof(message),
		 "error: the thread '%s' called execve (59), which its seccomp "
		 "filter forbids; --no-sandbox runs without filters\n",
		 name);
	CHECK(strstr(program.text, message));
}

TEST(confine, a_violation_names_the_thread_and_the_call)
{
	GUEST_REQUIRED();
	check_violation("vCPU 0");
	check_violation("devices");
	check_violation("collector");
}

static struct termios settings_of(int terminal)
{
	struct termios settings = { 0 };

	CHECK_EQUAL(tcgetattr(terminal, &settings), 0);
	return settings;
}

/* The user's shell gets the terminal back as it was. */
TEST(confine, a_violation_restores_the_terminal)
{
	struct user_regs_struct registers;
	struct termios before, during, after;
	int terminal, other_end, status;
	pid_t child, thread;
	unsigned long long syscall;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(openpty(&terminal, &other_end, NULL, NULL, NULL), 0);
	before = settings_of(terminal);
	fflush(NULL);
	child = fork();
	if (!child) {
		login_tty(other_end);
		program_exec("run --no-profile --kernel " GUEST_IMAGE
			     " --mem 64M --timeout 250 --append program=spin");
	}
	thread = wait_for_thread(child, "vCPU 0");
	usleep(200000);
	during = settings_of(terminal);
	CHECK(!(during.c_lflag & ICANON));
	syscall = find_syscall(child);
	stop(thread, &registers);
	CHECK_EQUAL(inject(thread, syscall, &registers, SYS_execve,
			   (const unsigned long long[]){ 0, 0, 0 }),
		    TRAPPED);
	ptrace(PTRACE_DETACH, thread, 0, SIGSYS);
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	after = settings_of(terminal);
	CHECK_EQUAL(after.c_lflag, before.c_lflag);
	CHECK_EQUAL(after.c_iflag, before.c_iflag);
	close(terminal);
	close(other_end);
}

static char *status_of(const struct program *program)
{
	return command_output(NULL, "cat /proc/%d/task/%d/status", program->pid,
			      find_thread(program->pid, "vCPU 0"));
}

TEST(confine, root_can_become_another_user)
{
	char directory[] = "/tmp/kvmscope-confine-XXXXXX", arguments[512], *status;
	struct program program;
	struct stat file;

	GUEST_REQUIRED();
	if (geteuid())
		SKIP("only root can become another user");
	REQUIRE(mkdtemp(directory) && !chown(directory, 65534, 65534));
	snprintf(arguments, sizeof(arguments), RUN " --user nobody -o %s/perf.data", directory);
	start(&program, arguments);
	status = status_of(&program);
	CHECK(strstr(status, "Uid:\t65534\t65534\t65534\t65534\n"));
	CHECK(strstr(status, "Gid:\t65534\t65534\t65534\t65534\n"));
	CHECK(strstr(status, "CapPrm:\t0000004000000000\n")); /* CAP_PERFMON */
	free(status);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	CHECK_EQUAL(program.status, 0);
	CHECK(access("/nonexistent", F_OK)); /* the home of nobody */
	snprintf(arguments, sizeof(arguments), "%s/perf.data", directory);
	CHECK(!stat(arguments, &file) && file.st_uid == 65534);
	unlink(arguments);
	rmdir(directory);
	program_refuses("run --kernel " GUEST_IMAGE " --user nobody-knows",
			"--user nobody-knows: there is no such user");
}

/* CapBnd, CapPrm and more in /proc/PID/task/TID/status. */
TEST(confine, no_capability_can_be_regained)
{
	struct program program;
	char *status;

	GUEST_REQUIRED();
	start(&program, RUN " --sampler kick");
	status = status_of(&program);
	CHECK(strstr(status, "CapBnd:\t0000000000000000\n") || geteuid());
	CHECK(strstr(status, "CapPrm:\t0000004000000000\n") || geteuid()); /* CAP_PERFMON */
	CHECK(strstr(status, "NoNewPrivs:\t1\n"));
	free(status);
	kill(program.pid, SIGTERM);
	program_wait(&program);
}

/* The files that a run opens late are found where links lead. */
TEST(confine, links_lead_to_other_directories)
{
	char directory[64], arguments[512], image[PATH_MAX];
	struct program program;

	GUEST_REQUIRED();
	REQUIRE(realpath(GUEST_IMAGE, image));
	make_directory(directory);
	free(command_output(NULL, "cd %s && mkdir a b && cp %s b/guest && ln -s ../b/guest a/guest",
			    directory, image));
	snprintf(arguments, sizeof(arguments),
		 "run --kernel %s/a/guest --vmlinux %s/a/guest --mem 64M --duration 1 --console "
		 "none -o %s/perf.data --append program=spin",
		 directory, directory, directory);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	CHECK(!strstr(program.text, "Permission denied"));
	remove_directory(directory);
}

/* As Debian's link /vmlinuz: everything is below its directory. */
TEST(confine, a_kernel_in_the_root_directory_permits_nothing_else)
{
	static const char link[] = "/kvmscope-test-kernel";
	struct user_regs_struct registers;
	struct program program;
	char image[PATH_MAX];
	unsigned long long syscall;
	pid_t thread;

	GUEST_REQUIRED();
	if (!has_landlock())
		SKIP("needs Landlock");
	REQUIRE(realpath(GUEST_IMAGE, image));
	unlink(link);
	if (symlink(image, link))
		SKIP("the root directory is not writable");
	start(&program, "run --kernel /kvmscope-test-kernel --mem 64M --timeout 250 --console none "
			"-o /dev/null --append program=spin");
	unlink(link);
	syscall = find_syscall(program.pid);
	thread = wait_for_thread(program.pid, "collector");
	stop(thread, &registers);
	CHECK_EQUAL(open_foreign(thread, syscall, &registers), -EACCES);
	ptrace(PTRACE_SETREGS, thread, 0, &registers);
	ptrace(PTRACE_DETACH, thread, 0, 0);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	CHECK_EQUAL(program.status, 0);
}

/* The cache is read again at the end. */
TEST(confine, the_configuration_of_perf_is_read_where_it_is)
{
	char directory[64], arguments[512];
	struct program program;

	GUEST_REQUIRED();
	make_directory(directory);
	free(command_output(NULL,
			    "mkdir %s/out && printf '[buildid]\\ndir=%s/cache\\n' > %s/config",
			    directory, directory, directory));
	snprintf(arguments, sizeof(arguments), "%s/config", directory);
	setenv("PERF_CONFIG", arguments, 1);
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE " --vmlinux " GUEST_IMAGE " --mem 64M --duration 1 "
		 "--console none --self-contained -o %s/out/perf.data --append program=spin",
		 directory);
	program_run(&program, arguments);
	unsetenv("PERF_CONFIG");
	CHECK_EQUAL(program.status, 0);
	CHECK(!strstr(program.text, "Permission denied"));
	remove_directory(directory);
}

/* As in -o >(command). */
TEST(confine, the_output_can_be_a_pipe_of_the_shell)
{
	struct program program;
	char arguments[512];
	int ends[2];

	GUEST_REQUIRED();
	REQUIRE_EQUAL(pipe(ends), 0); /* inherited */
	snprintf(arguments, sizeof(arguments),
		 "run --kernel " GUEST_IMAGE " --mem 64M --duration 1 -F 1 --console none "
		 "-o /dev/fd/%d --append program=spin",
		 ends[1]);
	program_run(&program, arguments);
	CHECK_EQUAL(program.status, 0);
	close(ends[0]);
	close(ends[1]);
}

TEST(confine, the_control_socket_is_removed_from_a_new_directory)
{
	char directory[64], path[128];
	struct program program;

	GUEST_REQUIRED();
	make_directory(directory);
	setenv("XDG_RUNTIME_DIR", directory, 1);
	program_run(&program, "run --kernel " GUEST_IMAGE " --mem 64M --duration 1 --console none "
			      "-o /dev/null --append program=spin");
	unsetenv("XDG_RUNTIME_DIR");
	CHECK_EQUAL(program.status, 0);
	snprintf(path, sizeof(path), "%s/kvmscope", directory);
	CHECK_EQUAL(rmdir(path), 0);
	remove_directory(directory);
}

/* Root's file from before, in the directory of a user: replacing it needs that directory. */
TEST(confine, a_flight_recorder_writes_to_the_directory_of_a_user)
{
	char directory[64], arguments[512], path[128];
	struct program program;

	GUEST_REQUIRED();
	if (geteuid())
		SKIP("only root may write to another user's directory");
	make_directory(directory);
	free(command_output(NULL, "echo old > %s/perf.data && chown 65534 %s", directory,
			    directory));
	snprintf(arguments, sizeof(arguments), RUN " --flight 1s -o %s/perf.data", directory);
	start(&program, arguments);
	kill(program.pid, SIGUSR2);
	CHECK(program_wait_for(&program, "flight recording /tmp"));
	kill(program.pid, SIGTERM);
	program_wait(&program);
	snprintf(path, sizeof(path), "%s/perf.data.old", directory);
	CHECK_EQUAL(access(path, F_OK), 0);
	remove_directory(directory);
}

TEST(confine, a_dump_to_another_directory_is_refused_with_a_reason)
{
	char directory[64], arguments[512];
	struct program program, dump;

	GUEST_REQUIRED();
	if (!has_landlock())
		SKIP("needs Landlock");
	make_directory(directory);
	snprintf(arguments, sizeof(arguments),
		 RUN " --flight 1s --control %s/socket -o %s/perf.data", directory, directory);
	start(&program, arguments);
	snprintf(arguments, sizeof(arguments), "dump --socket %s/socket -o /tmp/elsewhere",
		 directory);
	program_run(&dump, arguments);
	CHECK_EQUAL(dump.status, 1);
	CHECK(strstr(dump.text, "the sandbox of this run permits files below /tmp/kvmscope-"));
	snprintf(arguments, sizeof(arguments), "dump --socket %s/socket -o %s/other", directory,
		 directory);
	program_run(&dump, arguments);
	CHECK_EQUAL(dump.status, 0);
	kill(program.pid, SIGTERM);
	program_wait(&program);
	remove_directory(directory);
}
