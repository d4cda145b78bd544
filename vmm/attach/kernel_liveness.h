/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a kernel that was found still runs, for ways to sample that tell no page tables. A
 * machine that is reset leaves the old kernel's memory as it is, for as long as nobody writes
 * there, while firmware and a decompressor work for tenths of a second in low memory; the next
 * kernel may then lie elsewhere (KASLR), and be given the old one's names.
 *
 * The kernel's time (guest_kernel_ticks()) stands still from the reset on. It also does while
 * nobody runs, or with interrupts off, as after a panic. So what tells is both: no tick for so
 * long, and kernel-mode code in the lower half of the address space, where Linux has none
 * (Documentation/arch/x86/x86_64/mm.rst).
 */
#ifndef KVMSCOPE_ATTACH_KERNEL_LIVENESS_H
#define KVMSCOPE_ATTACH_KERNEL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/* ns without a tick: more than the longest tick of Linux (CONFIG_HZ 100), and less than a reset
 * takes. */
#define KERNEL_PULSE_LIMIT 100000000ull

struct kernel_pulse {
	uint64_t ticks,
		time; /* ns: of the first sample at which the kernel's time had gone on so far */
	bool known;
	bool beats;   /* it was seen to go on, and nothing else was written there since */
	bool foreign; /* kernel-mode code in the lower half since then */
};

/*
 * At a sample of TIME (ns, of whatever clock samples have), by which the kernel's time was TICKS;
 * KERNEL_MODE and RIP as the processor had them. False: it is not that kernel that runs, as far as
 * can be told; until its time goes on.
 */
bool kernel_pulse_update(struct kernel_pulse *pulse, uint64_t time, uint64_t ticks,
			 bool kernel_mode, uint64_t rip);

/* ns without a tick, as far as is known when samples of a fifth of a second come together. */
#define KERNEL_PULSE_RECENT 500000000ull
/* ns that the ticks may be of after a sample. */
#define KERNEL_PULSE_LATE 1000000000ull

/*
 * Was the kernel's time seen to go on within KERNEL_PULSE_RECENT before TIME, and no faster than
 * time does? What only its memory tells may not be true any more where it was not: a VM of which
 * nothing else is known may have been reset. So it is until the first tick that is seen.
 */
bool kernel_pulse_is_recent(const struct kernel_pulse *pulse, uint64_t time);

/*
 * Whether a kernel that was found still runs on a vCPU, by where that has KVM write the time. Linux
 * has one place for each CPU, from early in its boot on (kernel: arch/x86/kernel/kvmclock.c,
 * kvm_register_clock()), and takes it back before it hands the machine on: kvm_crash_shutdown() for
 * kdump, kvm_pv_reboot_notify() for a reboot or kexec; kernels below 5.14 kvm_shutdown(). So do a
 * reset and an INIT (KVM: kvmclock_reset(); the VMM, which writes all MSRs). The next kernel that
 * runs there is another one, until the contrary shows.
 */

/* ns that a kernel's time has to go on for after its clock was elsewhere: a kernel that moves it
 * runs still.
 */
#define KERNEL_CLOCK_MOVED 2000000000ull

/* Of a vCPU and a kernel. Zeroed: nothing is known. */
struct kernel_clock {
	uint64_t place; /* MSR_KVM_SYSTEM_TIME while the kernel ran for certain; 0: not seen yet */
	uint64_t left;  /* ns: of the sample by which it was not there any more; 0: it is there */
};

/*
 * At a sample of TIME (ns, not 0) with MSR_KVM_SYSTEM_TIME at PLACE; BEAT (ns) is that of the
 * sample at which the kernel's time was last seen to have gone on, 0: it was not. False: the kernel
 * does not run on that vCPU, or has been taken off it for a moment (CPU hot-plug, suspend). A guest
 * without such a clock is taken to run it always.
 */
bool kernel_clock_update(struct kernel_clock *clock, uint64_t place, uint64_t time, uint64_t beat);

#endif
