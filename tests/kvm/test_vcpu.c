/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"

struct record {
	unsigned int ports, samples;
	uint32_t value;
	uint64_t sample_rip;
	atomic_uint sampled;
};

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	struct record *record = context;

	record->ports++;
	if (write)
		memcpy(&record->value, data, size);
	else
		memset(data, 0x5a, size);
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
	if (port == 0x99) /* a sample is due while the access is incomplete */
		pthread_kill(pthread_self(), VCPU_SAMPLE_SIGNAL);
}

static void on_mmio(void *context, struct vcpu *vcpu, uint64_t gpa, bool write, void *data,
		    unsigned int size)
{
	if (!write)
		memset(data, 0xff, size);
}

static void on_due_sample(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	record->samples++;
	record->sample_rip = vcpu_registers(vcpu)->rip;
	record->value = (uint32_t)vcpu_registers(vcpu)->rax;
	atomic_fetch_add(&record->sampled, 1);
}

static struct vcpu_handlers handlers_for(struct record *record)
{
	return (struct vcpu_handlers){
		.io = on_io, .mmio = on_mmio, .sample = on_due_sample, .context = record
	};
}

/* mov edx,0xf4; mov eax,0x2a; out dx,eax; hlt */
static const uint8_t debug_exit_code[] = { 0xba, 0xf4, 0, 0, 0, 0xb8, 0x2a, 0, 0, 0, 0xef, 0xf4 };
/* 1: jmp 1b */
static const uint8_t loop_code[] = { 0xeb, 0xfe };
/* mov edx,0x99; xor eax,eax; in al,dx; mov edx,0xf4; out dx,al */
static const uint8_t input_code[] = { 0xba, 0x99, 0,    0, 0, 0x31, 0xc0,
				      0xec, 0xba, 0xf4, 0, 0, 0,    0xee };
/* ud2 */
static const uint8_t fault_code[] = { 0x0f, 0x0b };

TEST(vcpu, debug_exit_ends_the_run)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = handlers_for(&record);
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(
		bare_guest_create(&vm, &handlers, debug_exit_code, sizeof(debug_exit_code), 0), 0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.value, 0x2a);
	CHECK_EQUAL(record.ports, 1);
	vm_destroy(&vm);
}

TEST(vcpu, sample_waits_for_the_pending_access)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = handlers_for(&record);
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, input_code, sizeof(input_code), 0), 0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.samples, 1);
	CHECK_EQUAL(record.sample_rip, BARE_GUEST_CODE + 8); /* after the IN, with the value read */
	CHECK_EQUAL(record.value, 0x5a);
	vm_destroy(&vm);
}

TEST(vcpu, triple_fault_reports_the_registers)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = handlers_for(&record);
	struct vm vm;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, fault_code, sizeof(fault_code), 0), 0);
	CHECK_EQUAL(vcpu_run(vm.vcpus[0]), VCPU_END_SHUTDOWN);
	CHECK(strstr(error_message(), "triple fault"));
	CHECK(strstr(error_message(), "rip 0000000000010000"));
	vm_destroy(&vm);
}

struct runner {
	struct vcpu *vcpu;
	enum vcpu_end end;
};

static void *run_vcpu(void *argument)
{
	struct runner *runner = argument;

	runner->end = vcpu_run(runner->vcpu);
	return NULL;
}

static void stop_within_bounded_tries(int cpl, unsigned int rounds)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = handlers_for(&record);
	struct vm vm;

	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop_code, sizeof(loop_code), cpl), 0);
	for (unsigned int round = 0; round < rounds; round++) {
		struct runner runner = { .vcpu = vm.vcpus[0] };
		pthread_t thread;

		atomic_store(&vm.vcpus[0]->stop, false);
		pthread_create(&thread, NULL, run_vcpu, &runner);
		/* Each round hits the thread at another point on its way into KVM_RUN. */
		for (unsigned int i = 0; i < round * 37; i++)
			__asm__ volatile("pause");
		vcpu_stop(vm.vcpus[0]); /* a single stop or kick must be enough */
		pthread_join(thread, NULL);
		CHECK_EQUAL(runner.end, VCPU_END_STOPPED);
	}
	vm_destroy(&vm);
}

TEST(vcpu, no_stop_is_lost_at_cpl0)
{
	BARE_GUEST_REQUIRED();
	stop_within_bounded_tries(0, 400);
}

TEST(vcpu, no_stop_is_lost_at_cpl3)
{
	BARE_GUEST_REQUIRED();
	stop_within_bounded_tries(3, 400);
}

TEST(vcpu, no_sample_is_lost_in_a_storm_of_kicks)
{
	struct record record = { 0 };
	struct vcpu_handlers handlers = handlers_for(&record);
	struct runner runner;
	struct vm vm;
	pthread_t thread;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(bare_guest_create(&vm, &handlers, loop_code, sizeof(loop_code), 3), 0);
	runner = (struct runner){ .vcpu = vm.vcpus[0] };
	pthread_create(&thread, NULL, run_vcpu, &runner);
	while (!atomic_load(&vm.vcpus[0]->thread_id))
		sched_yield();
	for (unsigned int i = 0; i < 500; i++) {
		unsigned int before = atomic_load(&record.sampled);

		vcpu_kick(vm.vcpus[0]);
		pthread_kill(thread, VCPU_SAMPLE_SIGNAL);
		vcpu_kick(vm.vcpus[0]);
		while (atomic_load(&record.sampled) == before)
			sched_yield();
	}
	vcpu_stop(vm.vcpus[0]);
	pthread_join(thread, NULL);
	CHECK_EQUAL(runner.end, VCPU_END_STOPPED);
	CHECK_EQUAL(record.samples, 500);
	CHECK_EQUAL(record.sample_rip, BARE_GUEST_CODE);
	vm_destroy(&vm);
}
