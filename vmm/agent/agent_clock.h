/* SPDX-License-Identifier: Apache-2.0 */
/* Converts guest time to host time by exchanges of messages. In each exchange the guest's reading
 * lies between two readings of the host, which bounds the difference of the clocks. No clock rate
 * is carried from one exchange to the next: a guest's clock may run slower or faster than nominal
 * (one calibrated in an emulator under load is much worse than a real oscillator), and its
 * hypervisor may step it forward. Times between two exchanges are converted when both are known:
 * the difference then lies between the bounds of both, except for the drift until a clock is set
 * again. The error is thus a bound that reflects how far the clocks really moved. Converted times
 * keep the guest's order. This holds if the guest's clock is the host's TSC. If the host's
 * clocksource is another one, KVM resets the guest's clock whenever a vCPU enters
 * (arch/x86/kvm/x86.c, kvm_guest_time_update), by two readings that may be apart, and in between it
 * runs at the TSC rate measured at boot, which may be wrong by a factor. Exchanges happen just
 * after such a reset, so they do not show this error: see AGENT_CLOCK_KVM_DRIFT.
 *
 * Both clocks are CLOCK_MONOTONIC_RAW in ns. One thread at a time.
 */
#ifndef KVMSCOPE_AGENT_AGENT_CLOCK_H
#define KVMSCOPE_AGENT_AGENT_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest error of a clock's rate that Linux accepts: a TSC with the worst accepted calibration
 * (arch/x86/kernel/tsc.c, tsc_refine_calibration_work). Real oscillators are much better.
 */
#define AGENT_CLOCK_DRIFT_PPM 10000u

/* ns: a longer exchange (minus UNSEEN) is imprecise: a better one is awaited. */
#define AGENT_CLOCK_WIDTH_MAX 40000000u
/* ns: if the clocks moved more than this against each other, times between two exchanges are
 * unknown. */
#define AGENT_CLOCK_STEP_MAX 20000000u
/* ns: a time with a larger error counts as unknown. Times between exchanges at most two seconds
 * apart are always known. */
#define AGENT_CLOCK_ERROR_MAX 100000000u

/* ns: how far a guest's clock may deviate between two exchanges if KVM resets it continually. An
 * estimate, not a bound: vCPUs seldom run longer without an exit.
 */
#define AGENT_CLOCK_KVM_DRIFT 20000000u

/* Number of exchanges kept: those of the last seconds. */
#define AGENT_CLOCK_EXCHANGES 64u

/* Zeroed: no exchange yet, and the guest's clock is the host's TSC. */
struct agent_clock {
	uint64_t unseen; /* ns, 0 or AGENT_CLOCK_KVM_DRIFT */
	size_t count;    /* of exchanges, the latest last */
	struct agent_clock_exchange {
		uint64_t before, after; /* of the host's clock */
		uint64_t guest;         /* the guest's clock at some moment between them */
	} exchanges[AGENT_CLOCK_EXCHANGES];
};

enum agent_clock_result {
	AGENT_CLOCK_ACCEPTED,
	AGENT_CLOCK_IMPRECISE, /* it took too long: not added */
	/* The guest's clock was set or stood still: its times since the latest exchange cannot be
	   converted. Not added. */
	AGENT_CLOCK_JUMPED,
};

/* ns: a longer exchange is imprecise. */
uint64_t agent_clock_width_max(const struct agent_clock *clock);

/* Adds EXCHANGE, whose BEFORE must not be less than the latest AFTER. */
enum agent_clock_result agent_clock_add(struct agent_clock *clock,
					const struct agent_clock_exchange *exchange);

/* True if all times between the latest exchange and EXCHANGE could be converted, although it is
 * imprecise; without an earlier exchange, true if it can be the first.
 */
bool agent_clock_usable(const struct agent_clock *clock,
			const struct agent_clock_exchange *exchange);

/* Adds an imprecise exchange that is usable, if no better one comes. */
void agent_clock_add_imprecise(struct agent_clock *clock,
			       const struct agent_clock_exchange *exchange);

/* Replaces the last exchange at the end of a session: the guest's clock had reached GUEST, which is
 * after the latest exchange, before the host's clock reached NOW. False if this gives no bounds.
 */
bool agent_clock_end(struct agent_clock *clock, uint64_t now, uint64_t guest);

/* True if there is an exchange at or after GUEST. */
bool agent_clock_covers(const struct agent_clock *clock, uint64_t guest);

/* The host time for GUEST, correct within *ERROR ns. After the latest exchange the error is only an
 * estimate. Needs at least one exchange.
 */
uint64_t agent_clock_host_time(const struct agent_clock *clock, uint64_t guest, uint64_t *error);

#endif
