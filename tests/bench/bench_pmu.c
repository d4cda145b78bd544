/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a write to a register of the emulated PMU for a guest, compared with the same exit
 * without any handling, while a counter counts, and with an armed watch that never hits. Also the
 * delay with which an overflow is noticed, in guest time.
 */
#include <string.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/bare_guest.h"
#include "vmm/debug/watches.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/pmu/vcpu_pmu.h"

#define WRITES     4000
#define ROUNDS_MAX 5
#define ROUNDS     bench_size(ROUNDS_MAX, 1)

/* IA32_FIXED_CTR0, and AMD's second counter: no event counts in them. */
#define MSR_INTEL 0x309
#define MSR_AMD   0xc0010005

/* mov esi, WRITES; 1: mov ecx, MSR; xor eax, eax; xor edx, edx; wrmsr; dec esi; jnz 1b; mov edx,
 * 0xf4; out dx, eax; hlt */
static uint8_t code[] = { 0xbe, WRITES & 0xff, WRITES >> 8, 0,    0,    0xb9, 0,    0,    0,
			  0,    0x31,          0xc0,        0x31, 0xd2, 0x0f, 0x30, 0xff, 0xce,
			  0x75, 0xf1,          0xba,        0xf4, 0,    0,    0,    0xef, 0xf4 };
#define MSR_AT 6
#define LAST   (BARE_GUEST_CODE + sizeof(code) - 1)

struct kind {
	bool bare, counting, watched;
};

static struct watches *watches;
static unsigned int writes;

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	watch_debug(watches, vcpu);
}

static bool on_bare_write(struct vcpu *vcpu, uint32_t index, uint64_t value)
{
	writes++;
	return true;
}

/* The filter is that of the PMU. */
static int create_bare(struct vcpu *vcpu, struct cpuid_table *table)
{
	enum pmu_model model;
	const struct msr_range *ranges;
	size_t count;
	int error = pmu_vcpu_model(table, &model);

	if (error)
		return error;
	ranges = pmu_vcpu_msrs(model, &count);
	return vm_filter_msrs(vcpu->vm, ranges, count);
}

static const struct vcpu_pmu_operations bare_operations = { .create = create_bare,
							    .write_msr = on_bare_write };

static bool start_counting(struct vcpu *vcpu, bool intel)
{
	if (!intel)
		return pmu_vcpu_write_msr(vcpu, 0xc0010000, 0x530076);
	return pmu_vcpu_write_msr(vcpu, 0x186, 0x53003c);
}

static int arm_silent_watch(struct vcpu *vcpu)
{
	struct watches_options options = { .vcpus = 1 };
	struct watch_request request = {
		.kind = BREAKPOINT_EXECUTE, .length = 1, .pinned = true, .period = 1
	};

	if (watches_create(&watches, &options) || watch_add(watches, &request) ||
	    watch_arm(watches, 0, LAST))
		return -1;
	return watch_enter(watches, vcpu);
}

static bool is_intel(void)
{
	uint32_t a = 0, b, c = 0, d;

	__asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return b == 0x756e6547; /* "Genu" */
}

/* us per write; negative: it failed. */
static double measure(struct kind kind)
{
	struct vcpu_handlers handlers = { .io = on_io,
					  .debug = on_debug,
					  .pmu = kind.bare ? &bare_operations
							   : &pmu_vcpu_emulated };
	const uint32_t msr = is_intel() ? MSR_INTEL : MSR_AMD;
	struct pmu_vcpu_statistics statistics = { 0 };
	uint64_t begin, end;
	struct vm vm;

	writes = 0;
	memcpy(code + MSR_AT, &msr, sizeof(msr));
	if (bare_guest_create(&vm, &handlers, code, sizeof(code), 0) ||
	    (kind.counting && !start_counting(vm.vcpus[0], is_intel())) ||
	    (kind.watched && arm_silent_watch(vm.vcpus[0])))
		return -1;
	begin = bench_time(CLOCK_MONOTONIC);
	vcpu_run(vm.vcpus[0]);
	end = bench_time(CLOCK_MONOTONIC);
	if (!kind.bare)
		pmu_vcpu_statistics(vm.vcpus[0], &statistics);
	if (kind.watched) {
		watch_leave(watches, vm.vcpus[0]);
		watches_destroy(watches);
	}
	vm_destroy(&vm);
	if (writes + statistics.msr_accesses != WRITES + (kind.counting ? 1 : 0))
		return -1;
	return (double)(end - begin) / WRITES / 1e3;
}

#define OVERFLOWS 400
#define PERIOD_NS 500000

static double late[OVERFLOWS]; /* us */
static unsigned int overflows;

static uint32_t first_counter(void)
{
	return is_intel() ? 0x4c1 : 0xc0010004;
}

/* The counter continues from 0 after an overflow; before that its highest bit is set. */
static void on_kicked(void *context, struct vcpu *vcpu)
{
	const double hz = *(double *)context;
	uint64_t count = 0;

	pmu_vcpu_read_msr(vcpu, first_counter(), &count);
	if (count >> (PMU_WIDTH - 1))
		return;
	late[overflows++] = (double)count / hz * 1e6;
	pmu_vcpu_write_msr(vcpu, first_counter(),
			   (uint64_t)(int64_t)(-hz * PERIOD_NS / 1e9) & ((1ull << PMU_WIDTH) - 1));
	if (overflows == OVERFLOWS)
		vcpu_request_end(vcpu, VCPU_END_STOPPED);
}

/* For a loop at CPL 3 with a masked LVTPC. */
static bool measure_lateness(void)
{
	static const uint8_t loop[] = { 0xeb, 0xfe };
	double hz = 1;
	struct vcpu_handlers handlers = {
		.io = on_io, .kicked = on_kicked, .context = &hz, .pmu = &pmu_vcpu_emulated
	};
	struct pmu_state state;
	struct vm vm;

	if (bare_guest_create(&vm, &handlers, loop, sizeof(loop), 3))
		return false;
	pmu_vcpu_save(vm.vcpus[0], &state);
	hz = (double)state.clock.core;
	pmu_vcpu_write_msr(vm.vcpus[0], first_counter(), (1ull << PMU_WIDTH) - 1);
	start_counting(vm.vcpus[0], is_intel());
	vcpu_run(vm.vcpus[0]);
	vm_destroy(&vm);
	return overflows == OVERFLOWS;
}

#define KINDS 4

int main(void)
{
	static const struct kind kinds[KINDS] = { { .bare = true },
						  { .counting = false },
						  { .counting = true },
						  { .counting = true, .watched = true } };
	static const char *const names[KINDS] = { NULL, "no counter counts",
						  "a counter counts with its PMI enabled",
						  "the same with a silent watch armed" };
	double times[KINDS][ROUNDS_MAX], bare;
	char what[96];

	if (!bare_guest_possible()) {
		bench_skip("pmu: a WRMSR to the emulated PMU", "no /dev/kvm");
		return 0;
	}
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < KINDS; i++) {
			times[i][round] = measure(kinds[i]);
			if (times[i][round] < 0) {
				fprintf(stderr, "bench_pmu: not every write arrived: %s\n",
					error_message());
				return 1;
			}
		}
	bare = bench_median(times[0], ROUNDS);
	for (int i = 1; i < KINDS; i++) {
		snprintf(what, sizeof(what), "pmu: a WRMSR to the emulated PMU, %s", names[i]);
		bench_print_relative(what, bench_median(times[i], ROUNDS), "us",
				     "a bare exit for WRMSR", bare);
	}
	if (!measure_lateness()) {
		fprintf(stderr, "bench_pmu: not every overflow arrived: %s\n", error_message());
		return 1;
	}
	bench_print("pmu: delay of an overflow, median", bench_median(late, OVERFLOWS), "us");
	bench_print("pmu: delay of an overflow, 99th percentile", late[OVERFLOWS * 99 / 100], "us");
	return 0;
}
