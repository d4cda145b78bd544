/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a kernel that was found still runs on a vCPU, by where that has KVM write the time. Linux
 * has one place for each CPU, from early in its boot on (kernel: arch/x86/kernel/kvmclock.c,
 * kvm_register_clock()), and takes it back before it hands the machine on: kvm_crash_shutdown() for
 * kdump, kvm_pv_reboot_notify() for a reboot or kexec; kernels below 5.14 kvm_shutdown(). So do a
 * reset and an INIT (KVM: kvmclock_reset(); the VMM, which writes all MSRs). The next kernel that
 * runs there is another one, until the contrary shows.
 */
#ifndef KVMSCOPE_ATTACH_KERNEL_CLOCK_H
#define KVMSCOPE_ATTACH_KERNEL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

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
bool kernel_clock_take(struct kernel_clock *clock, uint64_t place, uint64_t time, uint64_t beat);

#endif
