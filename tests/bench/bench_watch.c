// SPDX-License-Identifier: Apache-2.0
/*
 * What a hit of a watch costs: a breakpoint in a loop at CPL 0 of a guest on
 * this machine's KVM, whose every hit is stepped over; beside the same two
 * KVM_EXIT_DEBUG and nothing else between.
 */
#include <stdbool.h>

#include "shared/error.h"
#include "tests/bench/bench.h"
#include "tests/kvm/bare_guest.h"
#include "vmm/debug/watch.h"
#include "vmm/kvm/vcpu_debug.h"

#define HITS   4000
#define ROUNDS 5
#define LOOP   (BARE_GUEST_CODE + 5)

#define DR7_EXECUTE_0 0x402ull

/* mov ecx, HITS; 1: nop; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t code[] = { 0xb9, HITS & 0xff, HITS >> 8, 0, 0, 0x90, 0xff, 0xc9, 0x75,
				0xfb, 0xba,        0xf4,      0, 0, 0,    0xef, 0xf4 };

static const struct kvm_guest_debug breakpoint = {
	.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
	.arch.debugreg = { [0] = LOOP, [7] = DR7_EXECUTE_0 },
};
static const struct kvm_guest_debug step = { .control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP };

static struct watches *watches;
static unsigned int hits;

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data, unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_ask_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_bare_debug(void *context, struct vcpu *vcpu)
{
	bool stepped = vcpu->run->debug.arch.dr6 & DR6_BS;

	hits += !stepped;
	vcpu_set_guest_debug(vcpu, stepped ? &breakpoint : &step);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	watch_debug(watches, vcpu);
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	hits++;
}

/* ns for each hit; negative if it did not work. */
static double measure(bool bare)
{
	struct vcpu_handlers handlers = { .io = on_io, .debug = bare ? on_bare_debug : on_debug };
	struct watches_options options = { .vcpus = 1, .storm_limit = 1u << 30, .hit = on_hit };
	struct watch_request request = {
		.kind = BREAKPOINT_EXECUTE, .length = 1, .pinned = true, .period = 1
	};
	uint64_t begin, end;
	struct vm vm;

	hits = 0;
	if (bare_guest_create(&vm, &handlers, code, sizeof(code), 0) || watches_create(&watches, &options))
		return -1;
	if (bare)
		vcpu_set_guest_debug(vm.vcpus[0], &breakpoint);
	else if (watch_add(watches, &request) || watch_arm(watches, 0, LOOP) ||
		 watch_enter(watches, vm.vcpus[0]))
		return -1;
	begin = bench_time(CLOCK_MONOTONIC);
	vcpu_run(vm.vcpus[0]);
	end = bench_time(CLOCK_MONOTONIC);
	watch_leave(watches, vm.vcpus[0]);
	watches_destroy(watches);
	vm_destroy(&vm);
	return hits == HITS ? (double)(end - begin) / HITS : -1;
}

int main(void)
{
	double watched[ROUNDS], bare[ROUNDS], cost, least;

	if (!bare_guest_possible()) {
		bench_skip("watch: a hit of a breakpoint in kernel code", "no /dev/kvm");
		return 0;
	}
	for (int i = 0; i < ROUNDS; i++) {
		watched[i] = measure(false) / 1e3;
		bare[i] = measure(true) / 1e3;
		if (watched[i] < 0 || bare[i] < 0) {
			fprintf(stderr, "not every hit came: %s\n", error_message());
			return 1;
		}
	}
	cost = bench_median(watched, ROUNDS);
	least = bench_median(bare, ROUNDS);
	bench_print_beside("watch: a hit of a breakpoint in kernel code, stepped over", cost, "us",
			   "two bare KVM_EXIT_DEBUG", least);
	bench_print_beside("watch: hits of a breakpoint in kernel code", 1e6 / cost, "1/s",
			   "two bare KVM_EXIT_DEBUG", 1e6 / least);
	return 0;
}
