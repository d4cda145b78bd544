/* SPDX-License-Identifier: Apache-2.0 */
/* Watches on the local KVM that every KVM supports: breakpoints in code at CPL 0. */
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/bare_guest.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/debug/watches.h"
#include "vmm/machine/host_probe.h"

#define ROUNDS 200
#define LOOP   (BARE_GUEST_CODE + 5)

/* mov ecx, ROUNDS; 1: nop; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t loop_code[] = { 0xb9, ROUNDS, 0,    0, 0, 0x90, 0xff, 0xc9, 0x75,
				     0xfb, 0xba,   0xf4, 0, 0, 0,    0xef, 0xf4 };
/* 1: nop; nop; nop; jmp 1b */
static const uint8_t endless_code[] = { 0x90, 0x90, 0x90, 0xeb, 0xfb };

struct record {
	struct watches *watches;
	struct vm vm;
	struct vcpu_handlers handlers;
	uint64_t samples, represented, wrong_address;
	unsigned int states[4]; /* by enum watch_state: number of times entered */
	uint64_t last_counter;  /* RCX at the last hit */
};

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	watch_kicked(record->watches, vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	watch_debug(record->watches, vcpu);
}

/* A variable on which a debugger of the VMM itself has a hardware watchpoint. */
static volatile uint64_t of_the_host;

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	struct record *record = context;

	record->samples++;
	of_the_host = record->samples;
	record->represented += hit->period;
	record->wrong_address += vcpu_registers(vcpu)->rip != hit->address;
	record->last_counter = vcpu_registers(vcpu)->rcx;
}

static void on_change(void *context, struct vcpu *vcpu, unsigned int watch, enum watch_state state)
{
	struct record *record = context;

	record->states[state]++;
}

static bool start(struct record *record, const void *code, size_t size, unsigned int storm_limit)
{
	struct watches_options options = { .vcpus = 1,
					   .storm_limit = storm_limit,
					   .rotation = 1000000,
					   .hit = on_hit,
					   .changed = on_change,
					   .context = record };

	*record = (struct record){ .handlers = { .io = on_io,
						 .kicked = on_kicked,
						 .debug = on_debug,
						 .context = record } };
	if (bare_guest_create(&record->vm, &record->handlers, code, size, 0))
		return false;
	return !watches_create(&record->watches, &options);
}

static void finish(struct record *record)
{
	watch_leave(record->watches, record->vm.vcpus[0]);
	watches_destroy(record->watches);
	vm_destroy(&record->vm);
}

static int add(struct record *record, bool pinned, uint64_t cr3, uint64_t period)
{
	return watch_add(record->watches, &(struct watch_request){ .kind = BREAKPOINT_EXECUTE,
								   .length = 1,
								   .pinned = pinned,
								   .vcpu = ARBITER_ALL_VCPUS,
								   .cr3 = cr3,
								   .period = period });
}

TEST(watch, every_execution_is_one_hit)
{
	struct watch_statistics statistics;
	struct record record;
	int watch;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	watch = add(&record, true, 0, 1);
	CHECK_EQUAL(watch_arm(record.watches, (unsigned int)watch, LOOP), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.samples, ROUNDS);
	CHECK_EQUAL(record.wrong_address, 0);
	CHECK_EQUAL(record.last_counter, 1);
	watch_statistics(record.watches, (unsigned int)watch, ARBITER_ALL_VCPUS, &statistics);
	CHECK_EQUAL(statistics.hits, ROUNDS);
	CHECK_EQUAL(statistics.throttled, 0);
	CHECK(statistics.times.running > 0 && statistics.times.running <= statistics.times.enabled);
	finish(&record);
}

/* Two consecutive ones: the step over the first ends at the second. */
TEST(watch, neighbours_are_hit_as_often)
{
	struct watch_statistics first, second;
	struct record record;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	CHECK_EQUAL(add(&record, true, 0, 1), 0);
	CHECK_EQUAL(add(&record, false, 0, 1), 1);
	CHECK_EQUAL(watch_arm(record.watches, 0, LOOP), 0);
	CHECK_EQUAL(watch_arm(record.watches, 1, LOOP + 1), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	watch_statistics(record.watches, 0, ARBITER_ALL_VCPUS, &first);
	watch_statistics(record.watches, 1, ARBITER_ALL_VCPUS, &second);
	CHECK_EQUAL(first.hits, ROUNDS);
	CHECK_EQUAL(second.hits, ROUNDS);
	CHECK_EQUAL(record.wrong_address, 0);
	finish(&record);
}

TEST(watch, sample_has_the_weight_of_its_period)
{
	struct record record;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	CHECK_EQUAL(add(&record, true, 0, 7), 0);
	CHECK_EQUAL(watch_arm(record.watches, 0, LOOP), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(record.samples, ROUNDS / 7);
	CHECK_EQUAL(record.represented, ROUNDS / 7 * 7);
	finish(&record);
}

TEST(watch, other_address_space_is_not_reported)
{
	struct watch_statistics here, elsewhere;
	struct record record;
	uint64_t cr3;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	cr3 = vcpu_special_registers(record.vm.vcpus[0])->cr3;
	CHECK_EQUAL(add(&record, true, cr3 | 0x18, 1), 0); /* the low bits are not part of the
							    * address */
	CHECK_EQUAL(add(&record, true, cr3 + 0x1000, 1), 1);
	CHECK_EQUAL(watch_arm(record.watches, 0, LOOP), 0);
	CHECK_EQUAL(watch_arm(record.watches, 1, LOOP), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	watch_statistics(record.watches, 0, ARBITER_ALL_VCPUS, &here);
	watch_statistics(record.watches, 1, ARBITER_ALL_VCPUS, &elsewhere);
	CHECK_EQUAL(here.hits, ROUNDS);
	CHECK_EQUAL(elsewhere.hits, 0);
	finish(&record);
}

TEST(watch, impossible_watches_are_refused)
{
	struct watch_request request = { .kind = BREAKPOINT_WRITE, .length = 8, .period = 1 };
	struct record record;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	CHECK_EQUAL(watch_add(record.watches, &request), 0);
	CHECK_EQUAL(watch_arm(record.watches, 0, 0x1004), -EINVAL);
	CHECK(strstr(error_message(), "0x1004"));
	request.length = 3;
	CHECK_EQUAL(watch_add(record.watches, &request), -EINVAL);
	request.length = 4;
	request.vcpu = 1;
	CHECK_EQUAL(watch_add(record.watches, &request), -EINVAL);
	CHECK(strstr(error_message(), "vCPU 1"));
	finish(&record);
}

static void *run_vcpu(void *argument)
{
	struct record *record = argument;

	CHECK_EQUAL(watch_enter(record->watches, record->vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record->vm.vcpus[0]), VCPU_END_STOPPED);
	watch_leave(record->watches, record->vm.vcpus[0]);
	return NULL;
}

static pthread_t run_thread(struct record *record)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run_vcpu, record);
	while (!atomic_load(&record->vm.vcpus[0]->thread_id))
		sched_yield();
	return thread;
}

static uint64_t hits_of(struct record *record, unsigned int watch)
{
	struct watch_statistics statistics;

	watch_statistics(record->watches, watch, ARBITER_ALL_VCPUS, &statistics);
	return statistics.hits;
}

static void wait_for_hits(struct record *record, unsigned int watch, uint64_t hits)
{
	uint64_t before = hits_of(record, watch);

	while (hits_of(record, watch) < before + hits)
		usleep(1000);
}

TEST(watch, is_added_and_removed_while_the_guest_runs)
{
	struct record record;
	pthread_t thread;
	uint64_t after;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, endless_code, sizeof(endless_code), 1000000));
	CHECK_EQUAL(add(&record, true, 0, 1), 0);
	thread = run_thread(&record);
	CHECK_EQUAL(watch_arm(record.watches, 0, BARE_GUEST_CODE + 1), 0);
	vcpu_kick(record.vm.vcpus[0]);
	wait_for_hits(&record, 0, 100);
	watch_disarm(record.watches, 0);
	vcpu_kick(record.vm.vcpus[0]);
	CHECK_EQUAL(add(&record, true, 0, 1), 1);
	CHECK_EQUAL(watch_arm(record.watches, 1, BARE_GUEST_CODE), 0);
	vcpu_kick(record.vm.vcpus[0]);
	wait_for_hits(&record, 1, 100);
	after = hits_of(&record, 0);
	wait_for_hits(&record, 1, 100);
	CHECK_EQUAL(hits_of(&record, 0), after);
	watch_remove(record.watches, 1);
	vcpu_kick(record.vm.vcpus[0]);
	vcpu_stop(record.vm.vcpus[0]);
	pthread_join(thread, NULL);
	CHECK_EQUAL(record.wrong_address, 0);
	finish(&record);
}

/* Half of the maximum number of watches, one after the other. */
static void *add_and_remove(void *argument)
{
	struct record *record = argument;

	for (unsigned int i = 0; i < WATCHES_MAX / 2; i++) {
		int watch = add(record, i % 2, 0, 1);

		CHECK(watch >= 0);
		if (watch < 0)
			break;
		CHECK_EQUAL(
			watch_arm(record->watches, (unsigned int)watch, BARE_GUEST_CODE + i % 4),
			0);
		vcpu_kick(record->vm.vcpus[0]);
		wait_for_hits(record, (unsigned int)watch, 1);
		watch_remove(record->watches, (unsigned int)watch);
		vcpu_kick(record->vm.vcpus[0]);
	}
	return NULL;
}

/* A watch's number is never reused, but its register is reused at once. */
TEST(watch, several_may_add_and_remove_at_once)
{
	struct watch_slot slots[DEBUG_SLOTS];
	struct watch_statistics statistics;
	struct record record;
	pthread_t thread, users[2];

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, endless_code, sizeof(endless_code), 0));
	thread = run_thread(&record);
	for (int i = 0; i < 2; i++)
		pthread_create(&users[i], NULL, add_and_remove, &record);
	for (int i = 0; i < 2; i++)
		pthread_join(users[i], NULL);
	do /* until the vCPU has removed the last one */
		watch_slots(record.watches, 0, slots);
	while (slots[0].owner != WATCH_OWNER_UNKNOWN && !usleep(1000));
	vcpu_stop(record.vm.vcpus[0]);
	pthread_join(thread, NULL);
	CHECK_EQUAL(watch_count(record.watches), WATCHES_MAX);
	CHECK_EQUAL(add(&record, false, 0, 1), -EMFILE);
	CHECK_EQUAL(record.wrong_address, 0);
	for (unsigned int i = 0; i < WATCHES_MAX; i++) {
		watch_statistics(record.watches, i, 0, &statistics);
		CHECK(statistics.hits && statistics.times.running);
	}
	finish(&record);
}

TEST(watch, flexible_watches_take_turns)
{
	struct watch_statistics statistics;
	struct record record;
	pthread_t thread;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, endless_code, sizeof(endless_code), 1000000));
	for (unsigned int i = 0; i < 8; i++) {
		CHECK_EQUAL(add(&record, false, 0, 1), i);
		CHECK_EQUAL(watch_arm(record.watches, i, BARE_GUEST_CODE + i % 4), 0);
	}
	thread = run_thread(&record);
	for (unsigned int i = 0; i < 8; i++)
		wait_for_hits(&record, i, 20);
	vcpu_stop(record.vm.vcpus[0]);
	pthread_join(thread, NULL);
	for (unsigned int i = 0; i < 8; i++) {
		watch_statistics(record.watches, i, ARBITER_ALL_VCPUS, &statistics);
		CHECK(statistics.times.running > 0 &&
		      statistics.times.running < statistics.times.enabled);
	}
	finish(&record);
}

TEST(watch, storm_is_throttled_and_reported)
{
	struct watch_statistics statistics;
	struct record record;
	pthread_t thread;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, endless_code, sizeof(endless_code), 10));
	CHECK_EQUAL(add(&record, true, 0, 1), 0);
	CHECK_EQUAL(watch_arm(record.watches, 0, BARE_GUEST_CODE), 0);
	thread = run_thread(&record);
	wait_for_hits(&record, 0, 30);
	vcpu_stop(record.vm.vcpus[0]);
	pthread_join(thread, NULL);
	watch_statistics(record.watches, 0, ARBITER_ALL_VCPUS, &statistics);
	/* Eleven hits, then the end of the period. */
	CHECK(statistics.throttled >= 2);
	CHECK(statistics.hits <= 11 * (statistics.throttled + 1));
	CHECK_EQUAL(record.states[WATCH_THROTTLED], statistics.throttled);
	CHECK(record.states[WATCH_RUNNING] >= 2);
	finish(&record);
}

TEST(watch, slots_report_their_owners)
{
	struct watch_slot slots[DEBUG_SLOTS];
	struct watch_statistics statistics;
	struct record record;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	CHECK_EQUAL(add(&record, true, 0, 1), 0);
	CHECK_EQUAL(add(&record, true, 0, 1), 1);
	CHECK_EQUAL(watch_arm(record.watches, 1, LOOP), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	watch_slots(record.watches, 0, slots);
	CHECK_EQUAL(slots[0].owner, WATCH_OWNER_WATCH);
	CHECK_EQUAL(slots[0].watch, 1);
	CHECK_EQUAL(slots[0].breakpoint.address, LOOP);
	CHECK_EQUAL(slots[0].breakpoint.kind, BREAKPOINT_EXECUTE);
	CHECK_EQUAL(slots[1].owner, WATCH_OWNER_NONE);
	watch_statistics(record.watches, 1, 0, &statistics);
	CHECK_EQUAL(statistics.hits, ROUNDS);
	finish(&record);
}

static int watch_host(const volatile uint64_t *variable)
{
	struct perf_event_attr attribute = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attribute),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = (uintptr_t)variable,
		.bp_len = sizeof(*variable),
		.sample_period = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attribute, 0, -1, -1, 0);
}

/*
 * The host kernel's breakpoints of this thread, as set by gdb on the VMM: triggered at each hit of
 * the guest's.
 */
TEST(watch, host_s_own_watchpoint_survives_guest_runs)
{
	struct record record;
	uint64_t counted = 0;
	int event;

	BARE_GUEST_REQUIRED();
	event = watch_host(&of_the_host);
	if (event < 0)
		SKIP("this host has no breakpoints for its own programs: %m");
	of_the_host = 1;
	CHECK_EQUAL(read(event, &counted, sizeof(counted)), sizeof(counted));
	if (counted != 1) {
		close(event);
		SKIP("breakpoints of this host's own programs do not work: one write is %llu",
		     (unsigned long long)counted);
	}
	REQUIRE(start(&record, loop_code, sizeof(loop_code), 0));
	CHECK_EQUAL(add(&record, true, 0, 1), 0);
	CHECK_EQUAL(watch_arm(record.watches, 0, LOOP), 0);
	CHECK_EQUAL(watch_enter(record.watches, record.vm.vcpus[0]), 0);
	CHECK_EQUAL(vcpu_run(record.vm.vcpus[0]), VCPU_END_DEBUG_EXIT);
	CHECK_EQUAL(read(event, &counted, sizeof(counted)), sizeof(counted));
	CHECK_EQUAL(counted, 1 + ROUNDS);
	close(event);
	finish(&record);
}

TEST(watch, kinds_that_this_kvm_does_not_report_are_refused_with_the_reason)
{
	struct program program;
	struct probe_row row;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("debug.watchpoint", &row), 0);
	if (row.works == (PROBE_IN_KERNEL | PROBE_IN_USER))
		SKIP("this KVM reports all accesses to watched data");
	program_run(
		&program,
		"run --kernel build/guests/guest.elf --watch 0xffffffff81000000:8:w -o /dev/null");
	CHECK_EQUAL(program.status, 4);
	CHECK(strstr(program.text, "accesses to watched data"));
	CHECK(strstr(program.text, row.detail));
}
