/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's clock against the host's, from exchanges of messages: what the
 * guest read lies between two readings of ours. So the difference of the clocks is
 * known at each exchange within bounds, and nothing is taken from one exchange to another: a
 * clock may run slower or faster than it says (one that was calibrated in an
 * emulator under load is off by far more than a real oscillator), or be set forth a little where
 * its hypervisor corrects it.
 *
 * What happened between two exchanges is placed when both are known: the difference was then
 * somewhere between what the one and what the other allow, but for what a clock may run away until
 * it is set again. The error is thus a bound, and as wide as the clocks were really seen to move.
 * Times keep the order of the guest's.
 *
 * That holds where the guest's clock is the host's TSC. Where the host's kernel tells the time by
 * another one, KVM sets its guest's anew each time that it lets a vCPU run (arch/x86/kvm/x86.c,
 * kvm_guest_time_update), by two readings that may be apart, and in between it runs at the rate
 * that the TSC had when the host booted, which may be wrong by a multiple. Messages come when it
 * was set just now, so exchanges see nothing of it.
 *
 * Both clocks are CLOCK_MONOTONIC_RAW in ns. One thread at a time.
 */
#ifndef KVMSCOPE_AGENT_AGENT_CLOCK_H
#define KVMSCOPE_AGENT_AGENT_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * So far from the rate that it says may be what Linux takes for a clock: the TSC, where its
 * calibration went as badly as it may (arch/x86/kernel/tsc.c, tsc_refine_calibration_work). A real
 * oscillator is better by far; a guest whose hypervisor stood still goes by such a rate until it is
 * told the time again.
 */
#define AGENT_CLOCK_DRIFT_PPM 10000u

/* ns: an exchange that took longer, less what is unseen, tells little, and a better one is waited
 * for; */
#define AGENT_CLOCK_WIDTH_MAX 40000000u
/* and clocks that moved by more against each other between two of them say nothing of what was
 * between. */
#define AGENT_CLOCK_STEP_MAX 20000000u
/* ns: what is not known better than this has no place in the host's time. Between exchanges that
   are not more than two seconds apart all has one. */
#define AGENT_CLOCK_ERROR_MAX 100000000u

/*
 * ns: so far a guest's clock may be away between two exchanges and back at the next where KVM sets
 * it anew again and again. No bound: so long as a vCPU runs, at half its rate, is seldom.
 */
#define AGENT_CLOCK_KVM_DRIFT 20000000u

/* Exchanges that are kept: those of some seconds. */
#define AGENT_CLOCK_EXCHANGES 64u

/* All zero: nothing is known, of a clock that is the host's TSC. */
struct agent_clock {
	uint64_t unseen; /* ns, 0 or AGENT_CLOCK_KVM_DRIFT: see there */
	size_t count;    /* of exchanges, the latest last */
	struct agent_clock_exchange {
		uint64_t before, after; /* of the host's clock */
		uint64_t guest;         /* what the guest's showed at some moment between them */
	} exchanges[AGENT_CLOCK_EXCHANGES];
};

enum agent_clock_result {
	AGENT_CLOCK_ACCEPTED,
	AGENT_CLOCK_IMPRECISE, /* it took long: not taken */
	/* The guest's clock ran back, or it was set, or stood still: what it showed since the
	   latest exchange has no place in the host's time. Not taken. */
	AGENT_CLOCK_JUMPED,
};

/* ns: an exchange that took longer is imprecise. */
uint64_t agent_clock_width_max(const struct agent_clock *clock);

/* EXCHANGE comes behind those before it: its BEFORE is not less than their AFTER. */
enum agent_clock_result agent_clock_add(struct agent_clock *clock,
					const struct agent_clock_exchange *exchange);

/*
 * Would all have a place that happened between the latest exchange and EXCHANGE, however long that
 * took? If there was none: may it be the first?
 */
bool agent_clock_usable(const struct agent_clock *clock,
			const struct agent_clock_exchange *exchange);

/* Takes one that serves, for want of a better one. */
void agent_clock_add_imprecise(struct agent_clock *clock,
			       const struct agent_clock_exchange *exchange);

/*
 * There will be no other exchange: the guest's clock had shown GUEST when the host's showed NOW.
 * However late that was, GUEST was behind the latest exchange. False where nothing follows from
 * that.
 */
bool agent_clock_end(struct agent_clock *clock, uint64_t now, uint64_t guest);

/* Is there an exchange behind GUEST? */
bool agent_clock_covers(const struct agent_clock *clock, uint64_t guest);

/*
 * The host's time for GUEST; right within *ERROR ns. For a time that no exchange is behind, only as
 * long as the clock runs as it should. Not before the first exchange.
 */
uint64_t agent_clock_host_time(const struct agent_clock *clock, uint64_t guest, uint64_t *error);

#endif
