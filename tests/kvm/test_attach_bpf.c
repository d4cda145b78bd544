/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the BPF program reads from a guest's memory: a stack and tasks that were written by hand, so
 * that each address is known.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/sampled_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/attachment.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/kvm/guest_ram.h"

#define FRAMES       6
#define SAMPLES      20
#define TRIES        1000  /* of 10 ms */
#define BELL_WAIT    60000 /* ms between samples, if the machine has time */
#define CURRENT      0xa0000ull
#define TASK         0xa1000ull
#define OTHER_TASK   0xa2ff0ull /* its words cross a page boundary */
#define MM           0xa4000ull
#define STACK        0xa8000ull
#define SET          0xaa000ull /* offset of the cgroup in a task; each task has its own */
#define PAGE_TABLE   0xa9000ull
#define PAGING_CR3   0x1000ull /* tests/kvm/bare_guest.c */
#define PAGING_CR4   0x620ull
#define STACK_BOTTOM 0x8fe00ull
#define CLOCK_PLACE  0xb0001ull
/* The entry of the page directory that maps 0x812000: see tests/kvm/bare_guest.c. */
#define LAST_REGION 0x800000ull
#define LAST_ENTRY  0x3020ull
#define LARGE_PAGE  0x87ull
#define MOVED       0x400000ull

/* mov rbp, 0x8fe10; mov rsp, STACK_BOTTOM; jmp . */
static const uint8_t code[] = { 0x48, 0xc7, 0xc5, 0x10, 0xfe, 0x08, 0x00, 0x48,
				0xc7, 0xc4, 0x00, 0xfe, 0x08, 0x00, 0xeb, 0xfe };

/* Adjacent, farther apart than one read, across the end of a page, and some pages on. */
static const uint64_t frames[FRAMES] = { 0x8fe10, 0x8fe20, 0x8ff80, 0x8fff8, 0x90010, 0x93000 };
static const uint64_t returns[FRAMES] = { 0x11004, 0x12008, 0x1100c, 0x11010, 0x812014, 0x12018 };

static const struct guest_task_layout layout = {
	.known = true,
	.current = CURRENT,
	.scheduled = CURRENT + 8,
	.stack = 0x8,
	.mm = 0x10,
	.pid = 0x1c,
	.tgid = 0x20,
	.comm = 0x2b,
	.page_table = 0x48,
	.cgroups = { .known = true, .task_set = 0x60 },
};

static void put(struct sampled_guest *guest, uint64_t gpa, const void *bytes, size_t size)
{
	memory_write(&guest->vm.memory, gpa, bytes, size);
}

static void put_word(struct sampled_guest *guest, uint64_t gpa, uint64_t word)
{
	put(guest, gpa, &word, sizeof(word));
}

static void put_frames(struct sampled_guest *guest)
{
	for (int i = 0; i < FRAMES; i++) {
		put_word(guest, frames[i], i + 1 < FRAMES ? frames[i + 1] : 0);
		put_word(guest, frames[i] + 8, returns[i]);
	}
}

static void put_task(struct sampled_guest *guest, uint64_t at, uint32_t pid, uint64_t mm,
		     const char *comm)
{
	uint32_t ids[2] = { pid, pid + 1 };

	put_word(guest, at + layout.stack, STACK);
	put_word(guest, at + layout.mm, mm);
	put_word(guest, at + layout.cgroups.task_set, SET + pid);
	put(guest, at + layout.pid, ids, sizeof(ids));
	put(guest, at + layout.comm, comm, strlen(comm) + 1);
}

static void put_tasks(struct sampled_guest *guest)
{
	put_word(guest, CURRENT, TASK);
	put_word(guest, CURRENT + 8, OTHER_TASK);
	put_word(guest, MM + layout.page_table, PAGE_TABLE);
	put_task(guest, TASK, 100, MM, "first-name");
	put_task(guest, OTHER_TASK, 200, 0, "other-name");
}

/*
 * The number of samples in the loop, and how many of them are correct. The first samples have no
 * tasks and pages.
 */
struct outcome {
	unsigned int guests, chains, pages;
	unsigned int clocks;
	unsigned int seen, tasks;
	unsigned int all; /* all samples */
	uint64_t moved;   /* bytes by which the page that maps 0x812000 has been moved */
};

static bool chain_is_right(const struct guest_callchain *chain)
{
	if (chain->user_depth != FRAMES + 1 || chain->flags & SAMPLE_USER_TRUNCATED)
		return false;
	for (int i = 0; i < FRAMES; i++)
		if (chain->addresses[i + 1] != returns[i])
			return false;
	return true;
}

/* Each code page is reported once, with the page number of what is mapped there. */
static bool pages_are_right(const struct attach_guest_state *stack, uint64_t last_moved)
{
	static const uint64_t expected[] = { BARE_GUEST_CODE, 0x11000, 0x12000, 0x812000 };

	if (stack->page_count != 4)
		return false;
	for (int i = 0; i < 4; i++)
		if (stack->pages[i].gva != expected[i] ||
		    stack->pages[i].gpa != expected[i] + (i == 3 ? last_moved : 0))
			return false;
	return true;
}

static bool task_is_right(const struct guest_task_snapshot *seen, uint64_t at, uint32_t pid,
			  uint64_t mm, const char *comm)
{
	return seen->at == at && seen->pid == pid && seen->tgid == pid + 1 &&
	       seen->stack == STACK && seen->mm == mm &&
	       seen->page_table == (mm ? PAGE_TABLE : 0) && seen->set == SET + pid &&
	       !strncmp(seen->comm, comm, sizeof(seen->comm));
}

static void record_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			  const struct attach_guest_state *stack)
{
	struct outcome *outcome = context;

	outcome->all++;
	/* The first instructions are not part of the loop. */
	if (sample->flags & SAMPLE_HOST || !stack ||
	    sample->rip != BARE_GUEST_CODE + sizeof(code) - 2)
		return;
	outcome->guests++;
	outcome->chains += chain_is_right(chain);
	outcome->clocks += stack->clock_known && stack->clock == CLOCK_PLACE;
	if (!stack->tasks)
		return;
	outcome->seen++;
	outcome->pages += pages_are_right(stack, outcome->moved);
	outcome->tasks += task_is_right(&stack->tasks->current, TASK, 100, MM, "first-name") &&
			  task_is_right(&stack->tasks->scheduled, OTHER_TASK, 200, 0, "other-name");
}

/* With kvm_intel the RIP may be missing; it still counts as a sample. */
static void record_lost(void *context, unsigned int id, uint64_t count)
{
	struct outcome *outcome = context;

	outcome->all += (unsigned int)count;
}

static int sample_guest(struct sampled_guest *guest, struct attach_source *source)
{
	const struct attach_cpu cpu = { .layout = layout,
					.paging = { .cr3 = PAGING_CR3, .cr4 = PAGING_CR4 } };
	const struct vmm_vcpu vcpu = { .id = 0,
				       .tid = atomic_load(&guest->vm.vcpus[0]->thread_id) };
	static struct vmm_slot slots[VMM_SLOTS_MAX];
	int error = attach_bpf.slots(source, slots);

	if (error < 0)
		return error;
	error = attach_bpf.add(source, &vcpu);
	if (!error)
		attach_bpf.set_cpu(source, 0, &cpu);
	return error;
}

static void check_outcome(const struct outcome *outcome)
{
	CHECK(outcome->seen >= SAMPLES);
	CHECK_EQUAL(outcome->chains, outcome->guests);
	CHECK_EQUAL(outcome->clocks, access("/sys/module/kvm_amd", F_OK) ? outcome->guests : 0);
	CHECK_EQUAL(outcome->pages, outcome->seen);
	CHECK_EQUAL(outcome->tasks, outcome->seen);
}

static bool bell_rings(struct attach_source *source)
{
	struct pollfd bell = { .fd = attach_bpf.events(source), .events = POLLIN };

	return poll(&bell, 1, BELL_WAIT) == 1;
}

/* After a read that found nothing, the next sample wakes the reader. */
static void check_bell(struct attach_source *source, const struct outcome *outcome)
{
	unsigned int before;

	do {
		before = outcome->all;
		attach_bpf.drain(source);
	} while (outcome->all != before);
	CHECK(bell_rings(source));
	attach_bpf.drain(source);
	CHECK(outcome->all > before);
}

/* The region of the last page is remapped by an entry of the upper tables. */
static void check_new_tables(struct sampled_guest *guest, struct attach_source *source,
			     struct outcome *outcome)
{
	unsigned int before;

	put_word(guest, LAST_ENTRY, (LAST_REGION + MOVED) | LARGE_PAGE);
	attach_bpf.drain(source);
	/* One sample may have been in progress. */
	before = outcome->all;
	for (int i = 0; i < TRIES && outcome->all == before; i++) {
		usleep(10000);
		attach_bpf.drain(source);
	}
	*outcome = (struct outcome){ .moved = MOVED };
	for (int i = 0; i < TRIES && outcome->seen < SAMPLES; i++) {
		usleep(10000);
		attach_bpf.drain(source);
	}
}

/* -ENOTSUP, -EACCES: BPF cannot be used here. */
static int run(struct sampled_guest *guest, struct outcome *outcome)
{
	struct vmm_process *process = NULL;
	struct attach_target target = { .frequency = 1000,
					.vcpus_max = 1,
					.callchains = true,
					.sink = { record_sample, record_lost, outcome } };
	struct attach_source *source = NULL;
	int error = vmm_process_open(&process, getpid(), 0);

	target.process = process;
	if (!error)
		error = attach_bpf.open(&source, &target);
	if (!error)
		error = sample_guest(guest, source);
	/* A waiting reader gets the samples of a vCPU that is added meanwhile. */
	if (!error)
		CHECK(bell_rings(source));
	for (int i = 0; !error && i < TRIES && outcome->seen < SAMPLES; i++) {
		usleep(10000);
		attach_bpf.drain(source);
	}
	if (!error) {
		check_bell(source, outcome);
		check_outcome(outcome);
		check_new_tables(guest, source, outcome);
	}
	if (source)
		attach_bpf.close(source);
	vmm_process_close(process);
	return error;
}

static void check_samples(void)
{
	const struct sampled_guest_options options = {
		.code = code,
		.size = sizeof(code),
		.cpl = 3,
		.cpus = 1,
		.clock = SAMPLING_CLOCK_CPU,
		.clock_address = CLOCK_PLACE,
	};
	struct outcome outcome = { 0 };
	struct sampled_guest guest;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(sampled_guest_start(&guest, &options), 0);
	put_frames(&guest);
	put_tasks(&guest);
	sampled_guest_use(&guest, 20000000);
	error = run(&guest, &outcome);
	sampled_guest_stop(&guest);
	sampled_guest_free(&guest);
	if (error == -ENOTSUP || error == -EACCES)
		SKIP("BPF cannot be used here: %s", error_message());
	CHECK_EQUAL(error, 0);
	check_outcome(&outcome);
}

TEST(attach_bpf, a_sample_has_callers_their_pages_and_tasks)
{
	check_samples();
}

/* A vCPU's state can be read as soon as it is added. */
TEST(attach_bpf, the_same_in_a_kernel_without_casts)
{
	bpf_programs_avoid_cast(true);
	check_samples();
	bpf_programs_avoid_cast(false);
}

#define CPUS 3

/* Counts the samples of each vCPU. */
struct counts {
	unsigned int of[CPUS];
};

static void count_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			 const struct attach_guest_state *stack)
{
	struct counts *counts = context;

	counts->of[sample->vcpu]++;
}

static void count_lost(void *context, unsigned int id, uint64_t count)
{
	struct counts *counts = context;

	counts->of[id] += (unsigned int)count;
}

/* True if there are samples of vCPU ID, and none of vCPU NONE while they are read. */
static bool is_sampled(struct attach_source *source, struct counts *counts, int id, int none)
{
	attach_bpf.drain(source);
	*counts = (struct counts){ 0 };
	for (int i = 0; i < TRIES && counts->of[id] < SAMPLES; i++) {
		usleep(10000);
		attach_bpf.drain(source);
	}
	return counts->of[id] >= SAMPLES && (none < 0 || !counts->of[none]);
}

static int add(struct sampled_guest *guest, struct attach_source *source, unsigned int id)
{
	const struct vmm_vcpu vcpu = { .id = id,
				       .tid = atomic_load(&guest->vm.vcpus[id]->thread_id) };

	return attach_bpf.add(source, &vcpu);
}

static void check_all(struct attach_source *source, struct counts *counts)
{
	for (int id = 0; id < CPUS; id++)
		CHECK(is_sampled(source, counts, id, -1));
}

/* vCPUs present at the start share a map, which remains until the last of them is removed. */
static void come_and_go(struct sampled_guest *guest, struct attach_source *source,
			struct counts *counts)
{
	for (unsigned int id = 0; id < CPUS; id++)
		CHECK_EQUAL(add(guest, source, id), 0);
	check_all(source, counts);
	attach_bpf.remove(source, 0);
	attach_bpf.remove(source, 1);
	CHECK(is_sampled(source, counts, 2, 0));
	CHECK_EQUAL(add(guest, source, 0), 0);
	attach_bpf.remove(source, 2);
	CHECK(is_sampled(source, counts, 0, 2));
	CHECK_EQUAL(add(guest, source, 1), 0);
	CHECK_EQUAL(add(guest, source, 2), 0);
	check_all(source, counts);
}

static int start_three(struct sampled_guest *guest)
{
	const struct sampled_guest_options options = { .code = code,
						       .size = sizeof(code),
						       .cpl = 3,
						       .cpus = CPUS,
						       .clock = SAMPLING_CLOCK_CPU };
	int error = sampled_guest_start(guest, &options);

	if (!error)
		sampled_guest_use(guest, 20000000);
	return error;
}

TEST(attach_bpf, vcpus_that_come_and_go_do_not_affect_others)
{
	struct counts counts = { 0 };
	struct attach_target target = { .frequency = 1000,
					.vcpus_max = CPUS,
					.sink = { count_sample, count_lost, &counts } };
	struct attach_source *source = NULL;
	struct vmm_process *process = NULL;
	struct sampled_guest guest;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(start_three(&guest), 0);
	REQUIRE_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	target.process = process;
	error = attach_bpf.open(&source, &target);
	if (!error) {
		come_and_go(&guest, source, &counts);
		attach_bpf.close(source);
	}
	vmm_process_close(process);
	sampled_guest_stop(&guest);
	sampled_guest_free(&guest);
	if (error == -ENOTSUP || error == -EACCES)
		SKIP("BPF cannot be used here: %s", error_message());
	CHECK_EQUAL(error, 0);
}

/* Leaves this number of descriptors to this process. */
static void leave_descriptors(struct rlimit *before, unsigned int count)
{
	struct rlimit limit;
	int highest = dup(STDIN_FILENO);

	close(highest);
	getrlimit(RLIMIT_NOFILE, before);
	limit = *before;
	limit.rlim_cur = (rlim_t)highest + count;
	CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static unsigned int sampled_by(struct attach *attach)
{
	struct attach_statistics statistics;

	attach_statistics(attach, &statistics);
	return statistics.ended ? 0 : statistics.vcpus;
}

/* Two for each sampled vCPU, and two to search for one: none are left for the third at first. */
TEST(attach_bpf, a_vcpu_without_a_free_descriptor_is_sampled_later)
{
	const struct attach_options options = {
		.pid = getpid(), .backend = "bpf", .frequency = 100, .ring_size = 65536
	};
	struct sampled_guest guest;
	struct attach *attach;
	struct rlimit before;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(start_three(&guest), 0);
	error = attach_open(&attach, &options);
	if (!error) {
		leave_descriptors(&before, 5);
		CHECK_EQUAL(attach_start(attach), 0);
		CHECK(sampled_by(attach) > 0);
		CHECK(sampled_by(attach) < CPUS);
		setrlimit(RLIMIT_NOFILE, &before);
		for (int i = 0; i < TRIES && sampled_by(attach) < CPUS; i++)
			usleep(10000);
		CHECK_EQUAL(sampled_by(attach), CPUS);
		attach_stop(attach);
		CHECK_EQUAL(attach_error(attach), 0);
		attach_close(attach);
	}
	sampled_guest_stop(&guest);
	sampled_guest_free(&guest);
	if (error == -ENOTSUP || error == -EACCES)
		SKIP("BPF cannot be used here: %s", error_message());
	CHECK_EQUAL(error, 0);
}

#define FULL_HERTZ 10000
#define FULL_TIME                                                                                  \
	1000000000ull /* ns of CPU time in which a ring should become full; increased whenever it  \
		       * does not */
#define FULL_TRIES 6

/* Counts samples that were lost because the ring was not read in time. */
struct full {
	unsigned int guests, chains, unordered;
	uint64_t last; /* ns, time of the last sample */
	uint64_t lost;
};

static void record_late_sample(void *context, struct sample *sample, struct guest_callchain *chain,
			       const struct attach_guest_state *stack)
{
	struct full *full = context;

	full->unordered += sample->time < full->last;
	full->last = sample->time;
	if (sample->flags & SAMPLE_HOST || sample->rip != BARE_GUEST_CODE + sizeof(code) - 2)
		return;
	full->guests++;
	full->chains += chain_is_right(chain);
}

static void count_ring_lost(void *context, unsigned int id, uint64_t count)
{
	struct full *full = context;

	full->lost += count;
}

static void check_full(const struct full *full)
{
	CHECK(full->lost > 0);
	CHECK(full->guests >= SAMPLES);
	CHECK_EQUAL(full->chains, full->guests);
	CHECK_EQUAL(full->unordered, 0);
}

static uint64_t time_of(struct sampled_guest *guest)
{
	struct timespec time;
	clockid_t clock;

	pthread_getcpuclockid(guest->cpus[0].thread, &clock);
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void fill_ring(struct sampled_guest *guest, struct attach_source *source, struct full *full)
{
	uint64_t time = FULL_TIME;

	attach_bpf.drain(source);
	for (int i = 0; i < FULL_TRIES && !full->lost; i++, time *= 2) {
		*full = (struct full){ 0 };
		sampled_guest_use(guest, time_of(guest) + time);
		attach_bpf.drain(source);
	}
	check_full(full);
	/* Samples after the loss have room again. */
	full->guests = full->chains = 0;
	for (int i = 0; i < TRIES && full->guests < SAMPLES; i++) {
		usleep(10000);
		attach_bpf.drain(source);
	}
	check_full(full);
}

/*
 * The ring's size follows from the frequency, so that it does not become full, and grows with it.
 */
static void check_growth(struct attach_source *source, struct attach_target *target)
{
	size_t room = attach_bpf.room(source);

	target->frequency = FULL_HERTZ;
	CHECK_EQUAL(attach_bpf.set_frequency(source, FULL_HERTZ), 0);
	CHECK(attach_bpf.room(source) > room);
	room = attach_bpf.room(source);
	target->frequency = 100;
	CHECK_EQUAL(attach_bpf.set_frequency(source, 100), 0);
	CHECK_EQUAL(attach_bpf.room(source), room);
	target->frequency = FULL_HERTZ;
	CHECK_EQUAL(attach_bpf.set_frequency(source, FULL_HERTZ), 0);
}

TEST(attach_bpf, a_full_ring_reports_its_losses_and_nothing_wrong)
{
	const struct sampled_guest_options options = {
		.code = code, .size = sizeof(code), .cpl = 3, .cpus = 1, .clock = SAMPLING_CLOCK_CPU
	};
	struct full full = { 0 };
	struct attach_target target = { .frequency = 100,
					.vcpus_max = 1,
					.callchains = true,
					.sink = { record_late_sample, count_ring_lost, &full } };
	struct attach_source *source = NULL;
	struct vmm_process *process = NULL;
	struct sampled_guest guest;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(sampled_guest_start(&guest, &options), 0);
	put_frames(&guest);
	sampled_guest_use(&guest, 20000000);
	REQUIRE_EQUAL(vmm_process_open(&process, getpid(), 0), 0);
	target.process = process;
	error = attach_bpf.open(&source, &target);
	if (!error) {
		CHECK_EQUAL(sample_guest(&guest, source), 0);
		check_growth(source, &target);
		fill_ring(&guest, source, &full);
		attach_bpf.close(source);
	}
	vmm_process_close(process);
	sampled_guest_stop(&guest);
	sampled_guest_free(&guest);
	if (error == -ENOTSUP || error == -EACCES)
		SKIP("BPF cannot be used here: %s", error_message());
	CHECK_EQUAL(error, 0);
}
