// SPDX-License-Identifier: Apache-2.0
/* Whoever stops the vCPUs of somebody else's VM is killed while it does so: the VM goes on, and computes
 * right. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/vcpu_stop.h"

#define KILLS 200

/* What the processes of the test share. */
struct counts {
	volatile uint64_t guest, host, errors;
};

static struct counts *new_counts(void)
{
	return mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* A child: looks at the vCPU again and again. */
static _Noreturn void keep_looking(const struct vcpu_stop_target *target, struct vcpu_thread thread,
				   struct counts *counts)
{
	static struct remote remote;
	static struct vcpu_look look;

	for (;;) {
		int error = vcpu_stop_look(target, &thread, &remote, &look);

		counts->errors += !!error;
		counts->guest += !error && look.place == VCPU_IN_GUEST;
		counts->host += !error && look.place == VCPU_IN_HOST;
		usleep((useconds_t)(lrand48() % 200));
	}
}

static off_t written(const struct program *vm)
{
	struct stat stat;

	return fstat(vm->output, &stat) ? 0 : stat.st_size;
}

static bool has_ended(const struct program *vm)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)vm->pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

/* Until it has said so once more that its sum is right; false: it has ended. */
static bool computes(const struct program *vm)
{
	off_t before = written(vm);

	while (written(vm) == before && !has_ended(vm))
		usleep(200);
	return !has_ended(vm);
}

static void open_target(struct vcpu_stop_target *target, struct vmm_memory *memory, const struct program *vm)
{
	struct vmm_process *process;

	REQUIRE_EQUAL(vmm_process_open(&process, vm->pid), 0);
	REQUIRE(process->vcpu_count == 1 && process->vcpus[0].tid);
	REQUIRE_EQUAL(vmm_memory_open(memory, process), 0);
	*target = (struct vcpu_stop_target){
		.process = process, .memory = memory, .limit = 200000, .callchains = true
	};
	REQUIRE_EQUAL(remote_code_find(&target->code, process), 0);
}

/* Every look is one that is killed sooner or later; the guest takes timer interrupts, and leaves for the VMM
 * to write. */
TEST(attach_killed, the_vm_goes_on_after_200_kills)
{
	struct counts *counts = new_counts();
	struct vcpu_stop_target target;
	struct vcpu_thread thread = { .fd = -1 };
	struct vmm_memory memory;
	struct program vm;
	bool works = true;

	REQUIRE(counts != MAP_FAILED);
	if (!guest_run_possible())
		SKIP("/dev/kvm can not be opened");
	program_start(&vm, "run --no-profile --kernel " GUEST_IMAGE
			   " --timeout 100 --append program=sums_chunk=200000_timer=1000");
	REQUIRE(program_wait_for(&vm, "right"));
	open_target(&target, &memory, &vm);
	thread.vcpu = target.process->vcpus[0];
	srand48(getpid());
	for (int i = 0; i < KILLS && works; i++) {
		pid_t child;

		fflush(NULL);
		child = fork();
		if (!child)
			keep_looking(&target, thread, counts);
		usleep((useconds_t)(lrand48() % 5000));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		works = computes(&vm);
	}
	CHECK(works);
	if (!counts->guest)
		FAIL_TEST("of %llu looks none was at the guest, %llu failed",
			  (unsigned long long)counts->host, (unsigned long long)counts->errors);
	vmm_memory_close(&memory);
	vmm_process_close((struct vmm_process *)target.process);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	CHECK_EQUAL(vm.status, 0);
	munmap(counts, sizeof(*counts));
}

/* A core is not written of it, while which a vCPU could stand still: the recording is finished instead. */
TEST(attach_killed, a_quit_from_the_terminal_ends_it)
{
	struct program vm, tool;
	char file[64], arguments[160];

	if (!guest_run_possible())
		SKIP("/dev/kvm can not be opened");
	program_start(&vm, "run --no-profile --kernel " GUEST_IMAGE
			   " --timeout 100 --append program=sums_chunk=200000");
	REQUIRE(program_wait_for(&vm, "right"));
	snprintf(file, sizeof(file), "build/test-quit-%d.data", getpid());
	snprintf(arguments, sizeof(arguments), "attach --pid %d --backend ptrace --no-buildid-cache -o %s",
		 vm.pid, file);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "attached to process"));
	kill(tool.pid, SIGQUIT);
	program_wait(&tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(computes(&vm));
	unlink(file);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	CHECK_EQUAL(vm.status, 0);
}

/* The same of the whole program. */
TEST(attach_killed, kvmscope_itself_is_killed)
{
	struct program vm, tool;
	char arguments[160];

	if (!guest_run_possible())
		SKIP("/dev/kvm can not be opened");
	program_start(&vm, "run --no-profile --kernel " GUEST_IMAGE
			   " --timeout 100 --append program=sums_chunk=200000");
	REQUIRE(program_wait_for(&vm, "right"));
	for (int i = 0; i < 5; i++) {
		snprintf(
			arguments, sizeof(arguments),
			"attach --pid %d --backend ptrace -F 10000 --no-buildid-cache -o build/test-killed-%d.data",
			vm.pid, getpid());
		program_start(&tool, arguments);
		CHECK(program_wait_for(&tool, "attached to process"));
		usleep(200000);
		kill(tool.pid, SIGKILL);
		program_wait(&tool);
		CHECK_EQUAL(tool.status, 128 + SIGKILL);
		CHECK(computes(&vm));
	}
	snprintf(arguments, sizeof(arguments), "build/test-killed-%d.data", getpid());
	unlink(arguments);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	CHECK_EQUAL(vm.status, 0);
}
