/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that stops the vCPUs of another program's VM is killed, stopped or held by a debugger
 * while it does so: the VM continues and computes correctly.
 */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include "shared/unconst.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/thread_stop.h"
#include "vmm/attach/vcpu_stop.h"

/*
 * Number of kills, and the part that must hit a stop. Fewer with sanitizers, where this is the
 * second run.
 */
#ifdef __SANITIZE_ADDRESS__
#define KILLS     40
#define KILLS_MET 2
#else
#define KILLS     200
#define KILLS_MET 20
#endif
#define STOPS     400
#define STOPS_MET 20
#define HOLDS     400
#define HOLDS_MET 2

/* Shared by the processes of the test. */
struct counts {
	volatile uint64_t guest, host, errors;
	volatile bool stopping; /* a stop is in progress, or was when the process was killed */
};

static struct counts *new_counts(void)
{
	return mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		    -1, 0);
}

/* Runs in a child: samples the vCPU continuously. */
static _Noreturn void keep_sampling(const struct vcpu_stop_target *target,
				    struct vcpu_thread thread, struct counts *counts)
{
	static struct stop_guard guard;
	static struct remote remote;
	static struct stopped_vcpu vcpu_state;

	for (;;) {
		int error = stop_guard_begin(&guard);

		counts->stopping = true;
		if (!error)
			error = vcpu_stop_read(target, &thread, &remote, &vcpu_state);
		counts->stopping = false;
		stop_guard_end(&guard);
		counts->errors += !!error;
		counts->guest += !error && vcpu_state.location == VCPU_IN_GUEST;
		counts->host += !error && vcpu_state.location == VCPU_IN_HOST;
		usleep((useconds_t)(lrand48() % 200));
	}
}

static off_t written(const struct program *vm)
{
	struct stat stat;

	return fstat(vm->output, &stat) ? 0 : stat.st_size;
}

static bool pid_has_ended(pid_t pid)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

static bool has_ended(const struct program *vm)
{
	return pid_has_ended(vm->pid);
}

/* Waits until the VM reports a correct sum once more. Returns false if the VM has ended. */
static bool computes(const struct program *vm)
{
	off_t before = written(vm);

	while (written(vm) == before && !has_ended(vm))
		usleep(200);
	return !has_ended(vm);
}

static void open_target(struct vcpu_stop_target *target, struct vmm_memory *memory,
			const struct program *vm)
{
	struct vmm_process *process;

	REQUIRE_EQUAL(vmm_process_open(&process, vm->pid, 0), 0);
	REQUIRE(process->vcpu_count == 1 && process->vcpus[0].tid);
	REQUIRE_EQUAL(vmm_memory_open(memory, process), 0);
	*target = (struct vcpu_stop_target){
		.process = process, .memory = memory, .limit = 200000, .callchains = true
	};
	REQUIRE_EQUAL(remote_code_find(&target->code, process), 0);
}

struct qmp_sampled_vcpu {
	struct program vm;
	struct counts *counts;
	struct vcpu_stop_target target;
	struct vcpu_thread thread;
	struct vmm_memory memory;
};

/* The guest takes timer interrupts, and exits to the VMM to write. */
static void start_vm(struct qmp_sampled_vcpu *self)
{
	self->counts = new_counts();
	self->thread = (struct vcpu_thread){ .fd = -1 };
	REQUIRE(self->counts != MAP_FAILED);
	program_start(&self->vm, "run --no-profile --kernel " GUEST_IMAGE
				 " --timeout 100 --append program=sums_chunk=200000_timer=1000");
	REQUIRE(program_wait_for(&self->vm, "right"));
	open_target(&self->target, &self->memory, &self->vm);
	self->thread.vcpu = self->target.process->vcpus[0];
	srand48(getpid());
}

static void end_vm(struct qmp_sampled_vcpu *self)
{
	if (!self->counts->guest)
		FAIL_TEST("none of %llu stops met the guest, %llu failed",
			  (unsigned long long)self->counts->host,
			  (unsigned long long)self->counts->errors);
	vmm_memory_close(&self->memory);
	vmm_process_close(unconst(self->target.process));
	kill(self->vm.pid, SIGTERM);
	program_wait(&self->vm);
	CHECK_EQUAL(self->vm.status, 0);
	munmap(self->counts, sizeof(*self->counts));
}

static pid_t start_sampling(const struct qmp_sampled_vcpu *self)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		keep_sampling(&self->target, self->thread, self->counts);
	return child;
}

/* Waits until it has sampled the guest. */
static void let_it_sample(const struct qmp_sampled_vcpu *self)
{
	uint64_t before = self->counts->guest;

	while (self->counts->guest == before && !has_ended(&self->vm))
		usleep(100);
}

static void end_sampling(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void wait_a_moment(void)
{
	usleep((useconds_t)(lrand48() % 5000));
}

TEST(attach_killed, the_vm_continues_after_kills_at_any_moment)
{
	struct qmp_sampled_vcpu self;
	bool works = true;
	int met = 0;

	GUEST_REQUIRED();
	start_vm(&self);
	for (int i = 0; i < KILLS && works; i++) {
		pid_t child = start_sampling(&self);

		let_it_sample(&self);
		wait_a_moment();
		end_sampling(child);
		met += self.counts->stopping;
		works = computes(&self.vm);
	}
	CHECK(works);
	printf("%d of %d kills hit a stop\n", met, KILLS);
	CHECK(met >= KILLS_MET);
	end_vm(&self);
}

static bool is_stopped(pid_t pid)
{
	siginfo_t info = { 0 };

	return !waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) && info.si_pid;
}

/*
 * A process that was stopped in the middle of a sample continues by itself, and so does the VM. The
 * test waits for new output, since the VM may have written just before.
 */
TEST(attach_killed, the_vm_continues_when_its_sampler_is_stopped)
{
	struct qmp_sampled_vcpu self;
	bool works = true;
	int met = 0;
	pid_t child;

	GUEST_REQUIRED();
	start_vm(&self);
	child = start_sampling(&self);
	let_it_sample(&self);
	for (int i = 0; i < STOPS && works && met < STOPS_MET; i++) {
		wait_a_moment();
		kill(child, SIGSTOP);
		works = computes(&self.vm) && computes(&self.vm) && !pid_has_ended(child);
		met += works && !is_stopped(child);
		kill(child, SIGCONT);
	}
	CHECK(works);
	CHECK_EQUAL(met, STOPS_MET);
	end_sampling(child);
	end_vm(&self);
}

/*
 * Held by a debugger it cannot continue, as in a frozen cgroup. The vCPU's stop then ends when the
 * process ends.
 */
TEST(attach_killed, the_vm_continues_when_its_sampler_is_held)
{
	struct qmp_sampled_vcpu self;
	bool works = true;
	int met = 0;

	GUEST_REQUIRED();
	start_vm(&self);
	for (int i = 0; i < HOLDS && works && met < HOLDS_MET; i++) {
		pid_t child = start_sampling(&self);

		let_it_sample(&self);
		wait_a_moment();
		CHECK(!ptrace(PTRACE_SEIZE, child, 0, 0));
		CHECK(!ptrace(PTRACE_INTERRUPT, child, 0, 0));
		CHECK_EQUAL(waitpid(child, NULL, __WALL), child);
		works = computes(&self.vm) && computes(&self.vm);
		met += works && pid_has_ended(child);
		end_sampling(child);
	}
	CHECK(works);
	CHECK_EQUAL(met, HOLDS_MET);
	end_vm(&self);
}

static void start_plain_vm(struct program *vm)
{
	program_start(vm, "run --no-profile --kernel " GUEST_IMAGE
			  " --timeout 100 --append program=sums_chunk=200000");
	REQUIRE(program_wait_for(vm, "right"));
}

static void end_plain_vm(struct program *vm)
{
	kill(vm->pid, SIGTERM);
	program_wait(vm);
	CHECK_EQUAL(vm->status, 0);
}

#define ARGUMENTS 160

static void write_arguments(char arguments[ARGUMENTS], const struct program *vm, char file[64])
{
	snprintf(file, 64, "build/test-killed-%d.data", getpid());
	snprintf(
		arguments, ARGUMENTS,
		"attach --pid %d --backend ptrace -F 10000 --no-buildid-cache --no-disk-names -o %s",
		vm->pid, file);
}

static void start_tool(struct program *tool, const struct program *vm, char file[64])
{
	char arguments[ARGUMENTS];

	write_arguments(arguments, vm, file);
	program_start(tool, arguments);
	CHECK(program_wait_for(tool, "attached to process"));
}

/*
 * No core is dumped, since a vCPU could stay stopped meanwhile: the recording is finished instead.
 */
TEST(attach_killed, a_quit_from_the_terminal_ends_it)
{
	struct program vm, tool;
	char file[64];

	GUEST_REQUIRED();
	start_plain_vm(&vm);
	start_tool(&tool, &vm, file);
	kill(tool.pid, SIGQUIT);
	program_wait(&tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(computes(&vm));
	unlink(file);
	end_plain_vm(&vm);
}

static bool terminal_shows(int terminal, const char *text)
{
	static char shown[65536];
	size_t length = 0;
	ssize_t count;

	while (length < sizeof(shown) - 1 &&
	       (count = read(terminal, shown + length, sizeof(shown) - 1 - length)) > 0) {
		length += (size_t)count;
		shown[length] = '\0';
		if (strstr(shown, text))
			return true;
	}
	return false;
}

/* The terminal sends the signal before it echoes the character. */
TEST(attach_killed, ctrl_z_at_the_terminal_does_not_stop_it)
{
	char arguments[ARGUMENTS], file[64];
	int terminal, other_end, status;
	struct program vm;
	pid_t tool;

	GUEST_REQUIRED();
	start_plain_vm(&vm);
	write_arguments(arguments, &vm, file);
	REQUIRE_EQUAL(openpty(&terminal, &other_end, NULL, NULL, NULL), 0);
	fflush(NULL);
	tool = fork();
	if (!tool) {
		login_tty(other_end);
		program_exec(arguments);
	}
	CHECK(terminal_shows(terminal, "attached to process"));
	CHECK_EQUAL(write(terminal, "\032", 1), 1);
	CHECK(terminal_shows(terminal, "^Z"));
	CHECK(!is_stopped(tool));
	CHECK(computes(&vm));
	CHECK_EQUAL(write(terminal, "\003", 1), 1);
	CHECK(terminal_shows(terminal, file)); /* nothing reads its output */
	CHECK_EQUAL(waitpid(tool, &status, 0), tool);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(terminal);
	close(other_end);
	unlink(file);
	end_plain_vm(&vm);
}

/* The same for the whole program, which writes its recording in the end. */
TEST(attach_killed, kvmscope_itself_is_stopped)
{
	struct program vm, tool;
	bool works = true;
	char file[64];

	GUEST_REQUIRED();
	start_plain_vm(&vm);
	start_tool(&tool, &vm, file);
	for (int i = 0; i < 50 && works; i++) {
		wait_a_moment();
		kill(tool.pid, SIGSTOP);
		works = computes(&vm) && computes(&vm);
		kill(tool.pid, SIGCONT);
	}
	CHECK(works);
	kill(tool.pid, SIGINT);
	program_wait(&tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "samples of the guest"));
	unlink(file);
	end_plain_vm(&vm);
}

/* The same for the whole program. */
TEST(attach_killed, kvmscope_itself_is_killed)
{
	struct program vm, tool;
	char file[64];

	GUEST_REQUIRED();
	start_plain_vm(&vm);
	for (int i = 0; i < 5; i++) {
		start_tool(&tool, &vm, file);
		usleep(200000);
		kill(tool.pid, SIGKILL);
		program_wait(&tool);
		CHECK_EQUAL(tool.status, 128 + SIGKILL);
		CHECK(computes(&vm));
	}
	unlink(file);
	end_plain_vm(&vm);
}
