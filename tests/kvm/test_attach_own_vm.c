/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attaching detects in VMs that this process creates with KVM directly, with descriptors and
 * memslots that few VMMs have.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/attach/process.h"

#define PAGE 4096ull
/* More than BPF can report at a time, and more than are kept. */
#define SMALL_SLOTS 600
#define LARGE_SLOT  (1ull << 20)

struct own_vm {
	int kvm, vm, vcpu;
	uint8_t *memory;
};

static bool make(struct own_vm *own)
{
	*own = (struct own_vm){ .kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), .vm = -1, .vcpu = -1 };
	if (own->kvm < 0)
		return false;
	own->vm = ioctl(own->kvm, KVM_CREATE_VM, 0);
	own->vcpu = own->vm < 0 ? -1 : ioctl(own->vm, KVM_CREATE_VCPU, 0);
	own->memory = mmap(NULL, LARGE_SLOT, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return own->vcpu >= 0 && own->memory != MAP_FAILED;
}

static void unmake(struct own_vm *own)
{
	if (own->memory && own->memory != MAP_FAILED)
		munmap(own->memory, LARGE_SLOT);
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? own->vcpu : i == 1 ? own->vm : own->kvm;

		if (fd >= 0)
			close(fd);
	}
}

static bool add_slot(const struct own_vm *own, uint32_t slot, uint64_t gpa, uint64_t size)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (uintptr_t)own->memory,
	};

	return !ioctl(own->vm, KVM_SET_USER_MEMORY_REGION, &region);
}

TEST(attach_own_vm, a_vm_with_two_descriptors_is_listed_once)
{
	struct vmm_process *process = NULL;
	struct own_vm own, other;
	int copy;

	if (!make(&own))
		SKIP("/dev/kvm cannot create a VM here");
	copy = fcntl(own.vm, F_DUPFD_CLOEXEC, 0);
	CHECK_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	if (process)
		CHECK_EQUAL(process->vm_fd, own.vm);
	vmm_process_close(process);
	CHECK(make(&other));
	CHECK_EQUAL(vmm_process_open(&process, getpid(), 0), -E2BIG);
	unmake(&other);
	close(copy);
	unmake(&own);
}

static void *wait_for_end(void *pipe_end)
{
	char ignored;

	return read(*(int *)pipe_end, &ignored, 1) ? pipe_end : NULL;
}

/* A change tells the attach thread to scan for vCPUs again. */
TEST(attach_own_vm, the_size_of_a_process_changes_with_threads_and_descriptors)
{
	struct vmm_process *process = NULL;
	struct vmm_process_size before, with_thread, with_descriptors, after;
	struct own_vm own;
	pthread_t thread;
	int ends[2];

	if (!make(&own))
		SKIP("/dev/kvm cannot create a VM here");
	REQUIRE_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	usleep(20000); /* threads of earlier tests have ended */
	before = vmm_process_size(process);
	REQUIRE_EQUAL(pipe2(ends, O_CLOEXEC), 0);
	with_descriptors = vmm_process_size(process);
	REQUIRE_EQUAL(pthread_create(&thread, NULL, wait_for_end, &ends[0]), 0);
	with_thread = vmm_process_size(process);
	close(ends[1]);
	pthread_join(thread, NULL);
	close(ends[0]);
	after = vmm_process_size(process);
	CHECK_EQUAL(with_thread.threads, before.threads + 1);
	if (before.descriptors) {
		CHECK_EQUAL(with_descriptors.descriptors, before.descriptors + 2);
		CHECK_EQUAL(after.descriptors, before.descriptors);
	}
	vmm_process_close(process);
	unmake(&own);
}

TEST(attach_own_vm, the_cpu_time_of_a_process_is_what_it_used)
{
	struct vmm_process *process = NULL;
	struct own_vm own;
	uint64_t before;

	if (!make(&own))
		SKIP("/dev/kvm cannot create a VM here");
	REQUIRE_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	before = vmm_process_cpu_time(process);
	CHECK(before > 0);
	while (vmm_process_cpu_time(process) < before + 10000000)
		;
	vmm_process_close(process);
	unmake(&own);
}

static int find_slots(const struct vmm_process *process, struct vmm_slot *slots)
{
	const struct attach_target target = { .process = process, .frequency = 99, .vcpus_max = 1 };
	struct attach_source *source;
	int error = attach_bpf.open(&source, &target), count;

	if (error)
		return error;
	count = attach_bpf.slots(source, slots);
	attach_bpf.close(source);
	return count;
}

TEST(attach_own_vm, the_largest_of_many_slots_are_reported)
{
	static struct vmm_slot slots[VMM_SLOTS_MAX];
	struct vmm_process *process = NULL;
	struct own_vm own;
	int count;

	if (!make(&own))
		SKIP("/dev/kvm cannot create a VM here");
	CHECK(add_slot(&own, 0, 0, LARGE_SLOT));
	REQUIRE_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	count = find_slots(process, slots);
	if (count == -ENOTSUP || count == -EACCES) {
		vmm_process_close(process);
		unmake(&own);
		SKIP("BPF cannot be used here: %s", error_message());
	}
	CHECK_EQUAL(count, 1);
	for (uint32_t i = 1; i <= SMALL_SLOTS; i++)
		if (!add_slot(&own, i, LARGE_SLOT * 2 * i, PAGE))
			FAIL_TEST("slot %u: %m", i);
	count = find_slots(process, slots);
	CHECK_EQUAL(count, 1);
	CHECK_EQUAL(slots[0].size, LARGE_SLOT);
	CHECK_EQUAL(slots[0].hva, (uintptr_t)own.memory);
	vmm_process_close(process);
	unmake(&own);
}

/* A vCPU that cannot be sampled is retried with each scan. */
TEST(attach_own_vm, a_closed_vcpu_frees_its_map_slot_for_the_next)
{
	struct bpf_vm_vcpu first, refused, next;
	struct bpf_vm *vm;

	if (bpf_vm_open(&vm, false))
		SKIP("BPF cannot be used here: %.200s", error_message());
	bpf_vm_reserve(vm, 2);
	REQUIRE_EQUAL(bpf_vcpu_open(vm, &first, 4), 0);
	for (int i = 0; i < 3; i++) {
		REQUIRE_EQUAL(bpf_vcpu_open(vm, &refused, 4), 0);
		CHECK(refused.map == first.map);
		refused.ring.vcpu->id = 7;
		bpf_vcpu_close(vm, &refused);
	}
	REQUIRE_EQUAL(bpf_vcpu_open(vm, &next, 4), 0);
	CHECK(next.map == first.map);
	CHECK_EQUAL(next.ring.vcpu->id, 0);
	CHECK(next.ring.vcpu != first.ring.vcpu);
	bpf_vcpu_close(vm, &first);
	bpf_vcpu_close(vm, &next);
	bpf_vm_close(vm);
}
