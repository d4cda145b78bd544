/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of watches, measured with loops of a guest:
 * - a breakpoint hit that is stepped over, at CPL 0, compared with two plain KVM_EXIT_DEBUG exits;
 * - a watchpoint hit at CPL 0, compared with one plain KVM_EXIT_DEBUG;
 * - the guest's own MOV DR, WRMSR of a counter and exits at CPL 0, compared with the same without a
 * watch;
 * - the loss of a guest at CPL 3 with a watch that never hits.
 *
 * The last one is some thousandths at most, far less than the noise of a busy machine. So one guest
 * runs in short slices, alternately without and with the watch (ABBA, so that a drift affects both
 * alike), and its progress per CPU time of its thread is compared within each group of four. The
 * result is the median of the ratios with its 95 % interval by order statistics, compared with the
 * same measurement without any watch, which shows the noise.
 *
 * Runs on this machine's KVM, or with an argument that names the KVM: see bench_watch_rig.c.
 */
#include <cpuid.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/bare_guest.h"
#include "vmm/debug/watches.h"
#include "vmm/kvm/guest_ram.h"
#include "vmm/kvm/vcpu_debug.h"
#include "vmm/pmu/vcpu_pmu.h"

#define TURNS            4000
#define ROUNDS_MAX       5
#define ROUNDS           bench_size(ROUNDS_MAX, 1)
#define SILENT_FOURS_MAX 400
#define SILENT_FOURS     bench_size(SILENT_FOURS_MAX, 40)
#define SILENT_SLICE     5000000 /* ns of CPU time */

static const struct bench_bound silent_bound = { BENCH_MOST, 0.5 }; /* % */

#define DATA  0x80000ull
#define LOOP  (BARE_GUEST_CODE + 5)
#define NEVER (BARE_GUEST_CODE + 0x1000)

#define DR7_EXECUTE_0 0x402ull
#define DR7_WRITE_0   0xd0402ull

static const char *kvm_name = "local KVM";

/* mov ecx, TURNS; 1: nop; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t execute_loop[] = { 0xb9, TURNS & 0xff, TURNS >> 8, 0,    0,    0x90, 0xff,
					0xc9, 0x75,         0xfb,       0xba, 0xf4, 0,    0,
					0,    0xef,         0xf4 };
/* mov ecx, TURNS; 1: mov [DATA], ecx; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t write_loop[] = {
	0xb9, TURNS & 0xff, TURNS >> 8, 0,    0,    0x89, 0x0c, 0x25, 0, 0,    8,   0,
	0xff, 0xc9,         0x75,       0xf5, 0xba, 0xf4, 0,    0,    0, 0xef, 0xf4
};
/* mov ecx, TURNS; 1: mov dr3, rax; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t move_loop[] = { 0xb9, TURNS & 0xff, TURNS >> 8, 0,    0,    0x0f, 0x23, 0xd8,
				     0xff, 0xc9,         0x75,       0xf9, 0xba, 0xf4, 0,    0,
				     0,    0xef,         0xf4 };
/* mov esi, TURNS; mov ecx, MSR; xor eax, eax; xor edx, edx; 1: wrmsr; dec esi; jnz 1b; mov edx,
 * 0xf4; out dx, eax; hlt */
static uint8_t wrmsr_loop[] = {
	0xbe, TURNS & 0xff, TURNS >> 8, 0,    0,    0xb9, 0,    0,    0, 0, 0x31, 0xc0, 0x31, 0xd2,
	0x0f, 0x30,         0xff,       0xce, 0x75, 0xfa, 0xba, 0xf4, 0, 0, 0,    0xef, 0xf4
};
#define WRMSR_LOOP_MSR 6
/* mov edi, DATA; 1: mov ecx, 100; 2: dec ecx; jnz 2b; inc qword [rdi]; jmp 1b */
static const uint8_t endless_loop[] = { 0xbf, 0,    0,    8,    0,    0xb9, 100,  0,    0,   0,
					0xff, 0xc9, 0x75, 0xfc, 0x48, 0xff, 0x07, 0xeb, 0xf2 };

/* address of the watch; 0: none */
static const uint8_t leaving_loop[] = {
	0xb9, TURNS & 0xff, TURNS >> 8, 0,    0,    0xba, 0xf5, 0, 0, 0,    0xef,
	0xff, 0xc9,         0x75,       0xfb, 0xba, 0xf4, 0,    0, 0, 0xef, 0xf4
};

struct subject {
	const uint8_t *code;
	size_t size;
	enum breakpoint_kind kind;
	uint8_t length;
	uint64_t address; /* with the ioctls alone, without vmm/debug */
	bool bare;        /* by the ioctls alone, without vmm/debug */
	bool pmu;
};

static struct {
	const struct subject *subject;
	struct watches *watches;
	unsigned int hits;
} run;

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static struct kvm_guest_debug bare_breakpoint(const struct subject *subject)
{
	return (struct kvm_guest_debug){
		.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
		.arch.debugreg = { [0] = subject->address,
				   [7] = subject->kind == BREAKPOINT_EXECUTE ? DR7_EXECUTE_0
									     : DR7_WRITE_0 },
	};
}

static void on_bare_debug(struct vcpu *vcpu)
{
	static const struct kvm_guest_debug step = { .control = KVM_GUESTDBG_ENABLE |
								KVM_GUESTDBG_SINGLESTEP };
	struct kvm_guest_debug breakpoint = bare_breakpoint(run.subject);
	bool stepped = vcpu->run->debug.arch.dr6 & DR6_BS;

	run.hits += !stepped;
	if (run.subject->kind == BREAKPOINT_EXECUTE)
		vcpu_set_guest_debug(vcpu, stepped ? &breakpoint : &step);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	if (run.subject->bare)
		on_bare_debug(vcpu);
	else
		watch_debug(run.watches, vcpu);
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	run.hits++;
}

static int arm(const struct subject *subject, struct vcpu *vcpu)
{
	struct watch_request request = {
		.kind = subject->kind, .length = subject->length, .pinned = true, .period = 1
	};
	struct kvm_guest_debug breakpoint = bare_breakpoint(subject);
	int error;

	if (!subject->address)
		return 0;
	if (subject->bare)
		return vcpu_set_guest_debug(vcpu, &breakpoint);
	error = watch_add(run.watches, &request);
	if (!error)
		error = watch_arm(run.watches, 0, subject->address);
	return error ? error : watch_enter(run.watches, vcpu);
}

/* Prepares the guest of SUBJECT to run at CPL. */
static int prepare(const struct subject *subject, int cpl, struct vm *vm,
		   struct vcpu_handlers *handlers)
{
	struct watches_options options = { .vcpus = 1, .storm_limit = 1u << 30, .hit = on_hit };
	int error;

	*handlers = (struct vcpu_handlers){ .io = on_io,
					    .debug = on_debug,
					    .pmu = subject->pmu ? &pmu_vcpu_emulated : NULL };
	run.subject = subject;
	run.hits = 0;
	error = bare_guest_create(vm, handlers, subject->code, subject->size, cpl);
	if (!error)
		error = watches_create(&run.watches, &options);
	return error ? error : arm(subject, vm->vcpus[0]);
}

static void finish(struct vm *vm)
{
	watch_leave(run.watches, vm->vcpus[0]);
	watches_destroy(run.watches);
	vm_destroy(vm);
}

/* us per iteration; negative: it failed. */
static double measure(const struct subject *subject)
{
	struct vcpu_handlers handlers;
	uint64_t begin, end;
	struct vm vm;
	bool ended;

	if (prepare(subject, 0, &vm, &handlers))
		return -1;
	begin = bench_time(CLOCK_MONOTONIC);
	ended = vcpu_run(vm.vcpus[0]) == VCPU_END_DEBUG_EXIT;
	end = bench_time(CLOCK_MONOTONIC);
	finish(&vm);
	return ended ? (double)(end - begin) / 1e3 / TURNS : -1;
}

/*
 * The medians of both subjects, measured alternately. False if the guest did not run or had a
 * different number of hits than HITS.
 */
static bool measure_both(const struct subject *left, const struct subject *right, unsigned int hits,
			 double *of_left, double *of_right)
{
	double lefts[ROUNDS_MAX], rights[ROUNDS_MAX];

	for (int i = 0; i < ROUNDS; i++) {
		lefts[i] = measure(left);
		if (lefts[i] < 0 || run.hits != hits)
			return false;
		rights[i] = measure(right);
		if (rights[i] < 0 || (right->address && run.hits != hits))
			return false;
	}
	*of_left = bench_median(lefts, ROUNDS);
	*of_right = bench_median(rights, ROUNDS);
	return true;
}

static const char *name(const char *what)
{
	static char text[160];

	snprintf(text, sizeof(text), "watch: %s, %s", what, kvm_name);
	return text;
}

/* Hits of SUBJECT compared with the same number of plain exits; the bound is twice their cost. */
static void measure_hits(struct subject subject, const char *what, const char *rate,
			 const char *baseline)
{
	struct subject bare = subject;
	double cost, least;

	bare.bare = true;
	if (!measure_both(&subject, &bare, TURNS, &cost, &least)) {
		bench_skip(name(what), "this KVM does not report every hit");
		return;
	}
	bench_print_relative_bound(name(what), cost, "us", baseline, least,
				   (struct bench_bound){ BENCH_MOST, 2 * least });
	bench_print_relative(name(rate), 1e6 / cost, "1/s", baseline, 1e6 / least);
}

/* Iterations of a loop that should not become more expensive through a watch elsewhere. */
static void measure_other(struct subject subject, const char *what)
{
	struct subject alone = subject;
	double watched, plain;

	alone.address = 0;
	if (!measure_both(&subject, &alone, 0, &watched, &plain)) {
		bench_skip(name(what), error_message());
		return;
	}
	bench_print_relative(name(what), watched, "us", "the same without a watch", plain);
}

static void on_slice_end(void *context, struct vcpu *vcpu)
{
	vcpu_request_end(vcpu, VCPU_END_STOPPED);
}

static timer_t make_slice_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID,
				  .sigev_signo = VCPU_KICK_SIGNAL };
	timer_t timer;

	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer))
		exit(1);
	return timer;
}

static uint64_t turns_of(struct vm *vm)
{
	uint64_t turns = 0;

	memory_read(&vm->memory, DATA, &turns, sizeof(turns));
	return turns;
}

/* Iterations per ns of CPU time, in one slice. */
static double run_slice(struct vm *vm, timer_t timer, bool watched)
{
	struct itimerspec slice = { .it_value.tv_nsec = SILENT_SLICE };
	struct vcpu *vcpu = vm->vcpus[0];
	uint64_t turns, used;

	if (watched && watch_enter(run.watches, vcpu))
		exit(1);
	turns = turns_of(vm);
	used = bench_time(CLOCK_THREAD_CPUTIME_ID);
	timer_settime(timer, 0, &slice, NULL);
	vcpu_run(vcpu);
	used = bench_time(CLOCK_THREAD_CPUTIME_ID) - used;
	turns = turns_of(vm) - turns;
	watch_leave(run.watches, vcpu);
	return (double)turns / (double)used;
}

/* The loss in four slices through a watch in the second and third, in %. */
static double loss_in_four(struct vm *vm, timer_t timer, bool watched)
{
	double first = run_slice(vm, timer, false), second = run_slice(vm, timer, watched);
	double third = run_slice(vm, timer, watched), fourth = run_slice(vm, timer, false);

	return 100 * (1 - (second + third) / (first + fourth));
}

/*
 * The median of LOSSES and its 95 % interval: ranks of the sorted values from the binomial
 * distribution. BOUND is exceeded if the whole interval is beyond it.
 */
static void print_loss(const char *what, double *losses, struct bench_bound bound)
{
	double middle = bench_median(losses, SILENT_FOURS), half = 0.98 * sqrt(SILENT_FOURS);
	char text[128];

	bench_print(name(what), middle, "%");
	snprintf(text, sizeof(text), "%s: 95 %% interval from", what);
	bench_print_bound(name(text), losses[(int)(SILENT_FOURS / 2.0 - half)], "%", bound);
	snprintf(text, sizeof(text), "%s: 95 %% interval to", what);
	bench_print(name(text), losses[(int)(SILENT_FOURS / 2.0 + half)], "%");
}

static void measure_silent(struct subject subject, int cpl, const char *what)
{
	static double losses[SILENT_FOURS_MAX], noise[SILENT_FOURS_MAX];
	struct vcpu_handlers handlers;
	char text[128];
	timer_t timer;
	struct vm vm;

	if (prepare(&subject, cpl, &vm, &handlers)) {
		bench_skip(name(what), error_message());
		return;
	}
	watch_leave(run.watches, vm.vcpus[0]);
	handlers.kicked = on_slice_end;
	timer = make_slice_timer();
	loss_in_four(&vm, timer, true); /* warm-up */
	for (int i = 0; i < SILENT_FOURS; i++) {
		losses[i] = loss_in_four(&vm, timer, true);
		noise[i] = loss_in_four(&vm, timer, false);
	}
	timer_delete(timer);
	finish(&vm);
	print_loss(what, losses, silent_bound);
	snprintf(text, sizeof(text), "%s, without a watch", what);
	print_loss(text, noise, (struct bench_bound){ 0 });
}

static bool is_amd(void)
{
	unsigned int eax, ebx, ecx, edx;

	/* APM vol. 3 E.3.1: EBX of leaf 0 is "Auth". */
	return __get_cpuid(0, &eax, &ebx, &ecx, &edx) && ebx == 0x68747541;
}

int main(int argc, char **argv)
{
	uint32_t counter = is_amd() ? 0xc0010004 : 0xc1;

	if (argc > 1)
		kvm_name = argv[1];
	if (!bare_guest_possible()) {
		bench_skip(name("costs of watches"), "no /dev/kvm");
		return 0;
	}
	memcpy(wrmsr_loop + WRMSR_LOOP_MSR, &counter, sizeof(counter));
	measure_hits((struct subject){ execute_loop, sizeof(execute_loop), BREAKPOINT_EXECUTE, 1,
				       LOOP, false, false },
		     "a hit of a breakpoint in kernel code, stepped over",
		     "hits of a breakpoint in kernel code", "two bare KVM_EXIT_DEBUG");
	measure_hits((struct subject){ write_loop, sizeof(write_loop), BREAKPOINT_WRITE, 4, DATA,
				       false, false },
		     "a hit of a watchpoint", "hits of a watchpoint", "one bare KVM_EXIT_DEBUG");
	measure_other((struct subject){ move_loop, sizeof(move_loop), BREAKPOINT_EXECUTE, 1, NEVER,
					false, false },
		      "guest MOV DR with a watch armed");
	measure_other((struct subject){ wrmsr_loop, sizeof(wrmsr_loop), BREAKPOINT_EXECUTE, 1,
					NEVER, false, true },
		      "guest WRMSR to an emulated counter with a watch armed");
	measure_other((struct subject){ leaving_loop, sizeof(leaving_loop), BREAKPOINT_EXECUTE, 1,
					NEVER, false, false },
		      "guest exits to user space with a watch armed");
	if (argc > 1) /* In an emulator the thread's CPU time is not the guest's time. */
		return bench_status();
	measure_silent((struct subject){ endless_loop, sizeof(endless_loop), BREAKPOINT_EXECUTE, 1,
					 NEVER, false, false },
		       3, "slow-down of a CPL3 loop by a silent watch");
	return bench_status();
}
