/* SPDX-License-Identifier: Apache-2.0 */
/* An attachment with a test backend: its samples, vCPUs and frequencies. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/attach/attach_state.h"
#include "vmm/guest/linux/module_presence.h"

#define CODE     0x400000ull
#define CODE_GPA 0x201000ull
#define TEXT     0xffffffff81000000ull
#define TGID     70
#define CHAIN    3

/* Calls of the backend, and results. */
static struct {
	struct attach attach;
	struct user_guest guest;
	struct guest_tasks_snapshot tasks;
	struct attach_guest_state stack;
	uint64_t rip, later;         /* ns since the first sample */
	uint32_t while_set, drained; /* process of the last sample of each */
	uint8_t flags;               /* of the last sample */
	struct guest_callchain chain;
	uint64_t addresses[CHAIN];
	int set_error, add_error; /* results to return; the latter for all vCPUs but the first */
	unsigned int sets;
} bench;

static uint32_t give(void)
{
	struct sample sample = { .time = NS_PER_S + bench.later,
				 .rip = bench.rip,
				 .cpl = bench.rip >> 63 ? 0 : 3 };
	uint16_t user_depth = bench.rip >> 63 ? 0 : CHAIN;

	bench.chain = (struct guest_callchain){ .addresses = bench.addresses,
						.capacity = CHAIN,
						.kernel_depth = !user_depth,
						.user_depth = user_depth };
	for (uint64_t i = 0; i < CHAIN; i++)
		bench.addresses[i] = bench.rip + i * 16;
	sample.time += bench.attach.known_since;
	attach_record_sample(&bench.attach, &sample, &bench.chain, &bench.stack);
	bench.flags = sample.flags;
	return sample.pid;
}

static void set_cpu(struct attach_source *source, unsigned int id, const struct attach_cpu *cpu)
{
	bench.while_set = give();
}

static void drain(struct attach_source *source)
{
	bench.drained = give();
}

static int add(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	return vcpu->id && bench.add_error ? error_set(bench.add_error, "it cannot be sampled") : 0;
}

static int set_frequency(struct attach_source *source, unsigned int frequency)
{
	bench.sets++;
	return error_set(bench.set_error, "there is a vCPU too many");
}

static const struct attach_backend backend = { .name = "test",
					       .set_cpu = set_cpu,
					       .drain = drain,
					       .add = add,
					       .set_frequency = set_frequency };

static void make_kernel(void)
{
	struct guest_kernel *kernel;

	user_guest_make(&bench.guest, true);
	kernel = &bench.guest.kernel;
	kernel->tasks = (struct guest_task_layout){ .known = true, .stack_size = 0x4000 };
	kernel->symbols = symbols_new();
	symbols_finish(kernel->symbols);
	REQUIRE_EQUAL(guest_kernel_update_presence(kernel, NULL, 0), 0);
	kernel->identity =
		(struct guest_kernel_identity){ .gva = USER_GUEST_DIRECT + 0x5000, .gpa = 0x5000 };
	bench.tasks.current = (struct guest_task_snapshot){ .at = USER_GUEST_DIRECT + 0x5000,
							    .stack = USER_GUEST_DIRECT + 0x8000,
							    .tgid = TGID,
							    .pid = TGID };
	bench.stack = (struct attach_guest_state){ .registers = bench.guest.guest.registers,
						   .tasks = &bench.tasks };
	bench.stack.registers.paging = kernel->paging;
	bench.stack.registers.cpl = 0;
	bench.stack.registers.rsp = 0;
	bench.rip = TEXT;
}

/* A VM with vCPUs 0 and 1, run by this thread. */
static void make(void)
{
	static const struct ring_options ring = { .size = 1 << 16, .mode = RING_MODE_OVERWRITE };
	static struct vmm_vcpu sampled[2];
	static struct user_space_cpu cpus[2];
	static struct kernel_clock clocks[2];
	static struct ring *rings[2];
	struct attach *attach = &bench.attach;
	const struct vmm_vcpu vcpus[] = { { 0, gettid(), "test" }, { 1, gettid(), "test" } };

	memset(&bench, 0, sizeof(bench));
	make_kernel();
	memset(cpus, 0, sizeof(cpus));
	attach->backend = &backend;
	attach->sampled = sampled;
	attach->cpus = cpus;
	attach->clocks = clocks;
	attach->rings = rings;
	attach->ring_count = 2;
	REQUIRE_EQUAL(ring_create_with(&rings[0], &ring), 0);
	REQUIRE_EQUAL(ring_create_with(&rings[1], &ring), 0);
	REQUIRE_EQUAL(vmm_process_open_monitored(&attach->process, getpid()), 0);
	vmm_process_set_vcpus(attach->process, vcpus, 2);
	attach->memory.view = bench.guest.guest.view;
	REQUIRE_EQUAL(thread_exits_open(&attach->exits), 0);
	attach->layout_guessed = true; /* no backend supplies it */
	attach->target.callchains = true;
	pthread_mutex_init(&attach->kernel_lock, NULL);
}

static void unmake(void)
{
	ring_destroy(bench.attach.rings[0]);
	ring_destroy(bench.attach.rings[1]);
	vmm_process_close(bench.attach.process);
	thread_exits_close(&bench.attach.exits);
	pthread_mutex_destroy(&bench.attach.kernel_lock);
	module_presence_free(bench.guest.kernel.presence);
	symbols_free(bench.guest.kernel.symbols);
	user_guest_free(&bench.guest);
}

/* As set by the collector. */
static void set_kernel(const struct guest_kernel *kernel)
{
	bench.attach.layout_guessed = false;
	attach_set_kernel(&bench.attach, kernel);
}

/* Samples from before the backend knows a kernel have tasks at the addresses of the previous
 * kernel. */
TEST(attach_state, tasks_need_a_backend_that_knows_the_kernel)
{
	struct guest_kernel next;

	make();
	bench.add_error = -ESRCH;
	REQUIRE_EQUAL(attach_update_vcpus(&bench.attach), 0);
	set_kernel(&bench.guest.kernel);
	attach_drain(&bench.attach);
	CHECK_EQUAL(bench.while_set, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(bench.drained, TGID);
	next = bench.guest.kernel;
	next.text_start += 0x1000000;
	set_kernel(&next);
	attach_drain(&bench.attach);
	CHECK_EQUAL(bench.while_set, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(bench.drained, TGID);
	unmake();
}

TEST(attach_state, sampled_page_tables_expire)
{
	make();
	attach_drain(&bench.attach);
	CHECK(bench.attach.has_latest);
	bench.stack.cr3_of_task = true;
	bench.later = NS_PER_S;
	attach_drain(&bench.attach);
	CHECK(bench.attach.has_latest);
	bench.later = NS_PER_S + 1;
	attach_drain(&bench.attach);
	CHECK(!bench.attach.has_latest);
	unmake();
}

/* They were found with page tables of the previous kernel, as the processor's are unknown. */
TEST(attach_state, callers_by_a_task_s_page_tables_need_a_known_kernel)
{
	make();
	flat_guest_map(&bench.guest.guest, bench.guest.kernel.paging.cr3, CODE, CODE_GPA, 4096, 4);
	memset(bench.guest.guest.memory + CODE_GPA, 0xff, 4096);
	for (uint64_t i = 1; i < CHAIN; i++)
		bench.guest.guest.memory[CODE_GPA + i * 16 - 1] = 0xd0; /* call *%rax */
	bench.rip = CODE;
	attach_drain(&bench.attach);
	CHECK_EQUAL(bench.chain.user_depth, CHAIN);
	bench.stack.cr3_of_task = true;
	attach_drain(&bench.attach);
	CHECK_EQUAL(bench.chain.user_depth, 1);
	CHECK(bench.chain.flags & SAMPLE_USER_TRUNCATED);
	unmake();
}

/* The file has its symbols, and another kernel runs at an unknown address. */
TEST(attach_state, samples_after_a_kernel_was_dropped_are_not_its)
{
	make();
	set_kernel(&bench.guest.kernel);
	attach_drain(&bench.attach);
	CHECK(!(bench.flags & SAMPLE_OTHER_KERNEL));
	attach_drop_kernel(&bench.attach);
	attach_drain(&bench.attach);
	CHECK(bench.flags & SAMPLE_OTHER_KERNEL);
	CHECK_EQUAL(bench.chain.kernel_depth, 0);
	/* A boot begins, and these samples may be of its kernel. */
	set_kernel(NULL);
	attach_drain(&bench.attach);
	CHECK(!(bench.flags & SAMPLE_OTHER_KERNEL));
	unmake();
}

#define TICKS 0x6000ull
#define PLACE 0x1e02001ull

static uint8_t flags_with_clock(uint64_t place)
{
	bench.stack.clock = place;
	bench.later += 10 * NS_PER_MS;
	attach_drain(&bench.attach);
	return bench.flags;
}

static void tick(uint64_t ticks)
{
	flat_guest_write_u64(&bench.guest.guest, TICKS, ticks);
}

/* With kvm_intel CR3 is unknown: that its memory is still mapped proves nothing. */
TEST(attach_state, samples_are_unsymbolized_after_the_clock_was_unregistered)
{
	make();
	bench.guest.kernel.identity.ticks_gpa = TICKS;
	bench.stack.cr3_of_task = bench.stack.clock_known = true;
	set_kernel(&bench.guest.kernel);
	for (uint64_t ticks = 100; ticks < 110; ticks++) {
		tick(ticks);
		CHECK(!(flags_with_clock(PLACE) & SAMPLE_OTHER_KERNEL));
	}
	CHECK(flags_with_clock(0) & SAMPLE_OTHER_KERNEL);
	CHECK(flags_with_clock(PLACE + 0x1000) & SAMPLE_OTHER_KERNEL);
	CHECK(flags_with_clock(PLACE) & SAMPLE_OTHER_KERNEL);
	/* It was suspended. */
	tick(110);
	CHECK(!(flags_with_clock(PLACE) & SAMPLE_OTHER_KERNEL));
	unmake();
}

TEST(attach_state, a_vcpu_that_cannot_be_sampled_does_not_affect_others)
{
	static const int errors[] = { -EMFILE, -EACCES, -ENOMEM };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		make();
		bench.add_error = errors[i];
		CHECK_EQUAL(attach_update_vcpus(&bench.attach), 0);
		CHECK_EQUAL(bench.attach.sampled_count, 1);
		bench.add_error = 0;
		CHECK_EQUAL(attach_update_vcpus(&bench.attach), 0);
		CHECK_EQUAL(bench.attach.sampled_count, 2);
		unmake();
	}
}

TEST(attach_state, an_own_vcpu_that_cannot_be_sampled_is_an_error)
{
	make();
	bench.attach.own = true;
	bench.add_error = -EMFILE;
	CHECK_EQUAL(attach_update_vcpus(&bench.attach), -EMFILE);
	CHECK(strstr(error_message(), "it cannot be sampled"));
	/* Its thread has not run it yet. */
	bench.add_error = -ESRCH;
	CHECK_EQUAL(attach_update_vcpus(&bench.attach), 0);
	CHECK_EQUAL(bench.attach.sampled_count, 1);
	CHECK(bench.attach.arriving);
	unmake();
}

/* After a failure for some vCPUs, there is no common frequency. */
TEST(attach_state, a_frequency_that_failed_is_tried_again)
{
	struct attach *attach = &bench.attach;

	make();
	bench.set_error = -EMFILE;
	attach->stop_fd = eventfd(0, EFD_CLOEXEC);
	attach->ticks = 100;
	REQUIRE_EQUAL(request_open(&attach->request), 0);
	REQUIRE_EQUAL(pthread_create(&attach->thread, NULL, attach_run, attach), 0);
	CHECK_EQUAL(attach_set_frequency(attach, 3000), -EMFILE);
	CHECK(strstr(error_message(), "a vCPU too many"));
	CHECK_EQUAL(attach_set_frequency(attach, 3000), -EMFILE);
	CHECK_EQUAL(attach_set_frequency(attach, 100), -EMFILE);
	CHECK_EQUAL(bench.sets, 3);
	eventfd_write(attach->stop_fd, 1);
	pthread_join(attach->thread, NULL);
	close(attach->stop_fd);
	request_close(&attach->request);
	unmake();
}
