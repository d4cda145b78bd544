/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process (this one) with two VMs: each is attached to separately, and the samples, callers and
 * memory of the other are not attributed to it.
 */
#include <errno.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/program.h"
#include "tests/kvm/sampled_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/process.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/perf_data/perf_data_reader.h"

#define SECOND 1000000000ull
#define TRIES  10
#define FRAME  0x8fe10ull
#define LOOP   14 /* offset in the code below */
/*
 * The second VM's code starts this number of bytes later, so that both have different addresses and
 * callers.
 */
#define LATER 64

/* mov rbp, FRAME; mov rsp, 0x8fe00; jmp . */
static const uint8_t code[] = { 0x48, 0xc7, 0xc5, 0x10, 0xfe, 0x08, 0x00, 0x48,
				0xc7, 0xc4, 0x00, 0xfe, 0x08, 0x00, 0xeb, 0xfe };
static const uint64_t callers[] = { 0x11004, 0x12008 };
static const uint8_t call[] = { 0xff, 0xd0 }; /* call *%rax */

struct two_vms {
	struct sampled_guest guests[2];
	uint8_t code[2][LATER + sizeof(code)];
};

static uint64_t place_of(int vm)
{
	return BARE_GUEST_CODE + (vm ? LATER : 0) + LOOP;
}

static int start(struct two_vms *vms, int vm)
{
	const uint64_t frame[] = { 0, callers[vm] };
	struct sampled_guest_options options = { .code = vms->code[vm],
						 .size = sizeof(vms->code[vm]),
						 .cpl = 3,
						 .cpus = 1 + (unsigned int)vm };
	int error;

	memset(vms->code[vm], 0x90, sizeof(vms->code[vm]));
	memcpy(vms->code[vm] + (vm ? LATER : 0), code, sizeof(code));
	error = sampled_guest_start(&vms->guests[vm], &options);
	if (error)
		return error;
	memory_write(&vms->guests[vm].vm.memory, FRAME, frame, sizeof(frame));
	memory_write(&vms->guests[vm].vm.memory, callers[vm] - sizeof(call), call, sizeof(call));
	pthread_setname_np(vms->guests[vm].cpus[0].thread,
			   "CPU 0/KVM"); /* the same for both, so it does not distinguish them */
	return 0;
}

static void end(struct two_vms *vms)
{
	for (int vm = 0; vm < 2; vm++) {
		sampled_guest_stop(&vms->guests[vm]);
		sampled_guest_free(&vms->guests[vm]);
	}
}

/* KVM reports VMs in a file system that is not mounted on every machine. */
#define WITH_DEBUGFS "unshare -m sh -c 'mount -t debugfs none /sys/kernel/debug && exec %s'"

/* Runs ARGUMENTS by system(), with the program's path in place of each of its two %s. */
static int run(const char *arguments)
{
	char path[PATH_MAX], command[PATH_MAX + 600], inner[PATH_MAX + 400];

	program_path(path);
	snprintf(inner, sizeof(inner), "%.4000s %s", path, arguments);
	snprintf(command, sizeof(command), WITH_DEBUGFS, inner);
	return system(command);
}

struct seen {
	int vm;
	unsigned int right, wrong, callers, wrong_callers;
};

static int see(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	if (sample->ip == place_of(seen->vm))
		seen->right++;
	seen->wrong += sample->ip == place_of(!seen->vm);
	for (size_t i = 0; i < sample->callchain_size; i++) {
		seen->callers += sample->callchain[i] == callers[seen->vm];
		seen->wrong_callers += sample->callchain[i] == callers[!seen->vm];
	}
	return 0;
}

static void read_samples(const char *file, struct seen *seen)
{
	const struct perf_data_events events = { .sample = see, .context = seen };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, file), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

static void check_way(const struct two_vms *vms, int vm, const char *way)
{
	char arguments[300], file[64];
	struct seen seen = { .vm = vm };

	snprintf(file, sizeof(file), "build/test-vms-%d.data", getpid());
	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --vm %d --backend %s --stop-limit 100000 --time 1 -q --no-buildid-cache "
		"--no-disk-names -o %s",
		getpid(), vms->guests[vm].vm.vm_fd, way, file);
	/* On a busy machine a second may have no stop that is short enough. */
	for (int tries = 0; tries < TRIES && !seen.right; tries++) {
		CHECK_EQUAL(run(arguments), 0);
		read_samples(file, &seen);
	}
	unlink(file);
	if (!seen.right || seen.wrong || seen.wrong_callers ||
	    (!strcmp(way, "bpf") && !seen.callers))
		FAIL_TEST(
			"VM %d by %s: %u samples are its own and %u the other's, %u callers and %u",
			vm, way, seen.right, seen.wrong, seen.callers, seen.wrong_callers);
}

static void check_list(const struct two_vms *vms)
{
	char arguments[200];
	int fds[VMM_VMS_MAX];

	CHECK_EQUAL(process_list_vms(getpid(), fds), 2);
	for (int vm = 0; vm < 2; vm++) {
		CHECK_EQUAL(fds[vm], vms->guests[vm].vm.vm_fd);
		snprintf(arguments, sizeof(arguments),
			 "attach | grep -q \"%d .* %d vCPU.*--vm %d\"", getpid(), vm + 1, fds[vm]);
		CHECK_EQUAL(run(arguments), 0);
	}
}

/* One of the VMs has to be selected: kvmscope does not guess. */
static void check_choice(const struct two_vms *vms)
{
	struct vmm_process *process;
	char arguments[200];

	CHECK_EQUAL(vmm_process_open(&process, getpid(), 0), -E2BIG);
	CHECK(strstr(error_message(), "--vm"));
	CHECK_EQUAL(vmm_process_open(&process, getpid(), vms->guests[1].vm.vcpus[0]->fd), -ENOENT);
	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --time 1 2>&1 | grep -q \"runs several VMs.*%d, %d\"", getpid(),
		 vms->guests[0].vm.vm_fd, vms->guests[1].vm.vm_fd);
	CHECK_EQUAL(run(arguments), 0);
}

static bool may_mount(void)
{
	return !system("unshare -m mount -t debugfs none /sys/kernel/debug 2> /dev/null");
}

TEST(attach_vms, each_vm_of_a_process_is_attached_to_by_itself)
{
	static struct two_vms vms;

	BARE_GUEST_REQUIRED();
	if (!may_mount())
		SKIP("debugfs cannot be mounted here, so KVM does not report its VMs");
	REQUIRE_EQUAL(start(&vms, 0), 0);
	REQUIRE_EQUAL(start(&vms, 1), 0);
	check_list(&vms);
	check_choice(&vms);
	check_way(&vms, 0, "bpf");
	check_way(&vms, 1, "bpf");
	check_way(&vms, 1, "perf");
	check_way(&vms, 1, "ptrace");
	end(&vms);
}

/*
 * A VM that appears while another one is sampled is ignored, and so are its vCPUs with the same
 * numbers.
 */
static void check_company(const char *way)
{
	char arguments[300], file[64];
	static struct two_vms vms;
	struct seen seen = { 0 };
	struct program tool;

	REQUIRE_EQUAL(start(&vms, 0), 0);
	snprintf(file, sizeof(file), "build/test-vms-%d.data", getpid());
	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --backend %s --no-call-graph --no-buildid-cache --no-disk-names -o %s",
		getpid(), way, file);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "attached to process"));
	REQUIRE_EQUAL(start(&vms, 1), 0);
	sampled_guest_use(&vms.guests[1], 2 * SECOND);
	kill(tool.pid, SIGINT);
	program_wait(&tool);
	end(&vms);
	if (tool.status)
		FAIL_TEST("by %s: status %d:\n%s", way, tool.status, tool.text);
	read_samples(file, &seen);
	unlink(file);
	if (!seen.right || seen.wrong)
		FAIL_TEST("by %s: %u samples are its own and %u the other's", way, seen.right,
			  seen.wrong);
}

TEST(attach_vms, a_new_vm_is_not_confused_with_the_sampled_one)
{
	BARE_GUEST_REQUIRED();
	check_company("perf");
	check_company("bpf");
}
