/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects whether a known kernel still runs, without page tables: by its time, and by its kvmclock.
 *
 * A reset leaves the old kernel's memory unchanged until something writes there, while firmware and
 * a decompressor run in low memory for tenths of a second; the next kernel is then often elsewhere
 * (KASLR), and must not get the old one's symbols. The kernel's time (guest_kernel_ticks()) stops
 * at a reset, but also while all CPUs are idle or with interrupts off, as after a panic. So a
 * kernel is considered stopped after both: no tick for KERNEL_PULSE_LIMIT, and kernel-mode code in
 * the lower half of the address space, where Linux has none (Documentation/arch/x86/x86_64/mm.rst).
 */
#ifndef KVMSCOPE_ATTACH_KERNEL_LIVENESS_H
#define KVMSCOPE_ATTACH_KERNEL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/* ns without a tick: more than Linux's longest tick (CONFIG_HZ 100), less than a reset takes. */
#define KERNEL_PULSE_LIMIT 100000000ull

struct kernel_pulse {
	uint64_t ticks, time; /* ns: first sample with the current TICKS */
	bool known;
	bool beats;   /* the time advances, and nothing else was written there since */
	bool foreign; /* kernel-mode code in the lower half since then */
};

/*
 * Updates the pulse with a sample of TIME (ns, sample clock), at which the kernel's time was TICKS;
 * KERNEL_MODE and RIP are the processor's. False: another kernel runs most likely, until the time
 * advances.
 */
bool kernel_pulse_update(struct kernel_pulse *pulse, uint64_t time, uint64_t ticks,
			 bool kernel_mode, uint64_t rip);

/* ns without a tick, given that samples are drained every 200 ms. */
#define KERNEL_PULSE_RECENT 500000000ull
/* ns after a sample at which its ticks may have been read. */
#define KERNEL_PULSE_LATE 1000000000ull

/*
 * True if the kernel's time advanced within KERNEL_PULSE_RECENT before TIME, and not too fast.
 * Otherwise, and until the first tick, the VM may have been reset, and what is known from its
 * memory alone may be stale.
 */
bool kernel_pulse_is_recent(const struct kernel_pulse *pulse, uint64_t time);

/*
 * The kvmclock of a vCPU. Linux registers one address per CPU early at boot (kernel:
 * arch/x86/kernel/kvmclock.c, kvm_register_clock()), and unregisters it before another kernel runs:
 * kvm_crash_shutdown() for kdump, kvm_pv_reboot_notify() for reboot or kexec; before 5.14
 * kvm_shutdown(). A reset and an INIT clear it, too (KVM: kvmclock_reset(); the VMM, which writes
 * all MSRs). After that another kernel is assumed until the contrary is observed.
 */

/* ns that a kernel's time has to advance after its clock has moved, to prove that it still runs. */
#define KERNEL_CLOCK_MOVED 2000000000ull

/* State of one kernel on one vCPU. Zero-initialized: nothing is known. */
struct kernel_clock {
	/* MSR_KVM_SYSTEM_TIME while the kernel ran for certain; 0: not seen yet */
	uint64_t address;
	uint64_t left; /* ns: first sample with another address; 0: unchanged */
};

/*
 * Updates the clock with a sample of TIME (ns, not 0) and MSR_KVM_SYSTEM_TIME at ADDRESS; BEAT (ns)
 * is the last sample at which the kernel's time had advanced, 0: unknown. False: the kernel does
 * not run on that vCPU, or was taken off it temporarily (CPU hot-plug, suspend). True for guests
 * without kvmclock.
 */
bool kernel_clock_update(struct kernel_clock *clock, uint64_t address, uint64_t time,
			 uint64_t beat);

#endif
