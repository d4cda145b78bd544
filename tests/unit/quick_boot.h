/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_TESTS_UNIT_QUICK_BOOT_H
#define KVMSCOPE_TESTS_UNIT_QUICK_BOOT_H

/*
 * Command line for Debian's kernels in emulators, in tests that do not test their boot. It omits
 * self-tests of ciphers, certificates and keyboards: half a second in the rig, more on kvm_intel.
 * It also omits the check that the timer works, which waits for ten ticks: on a busy machine they
 * do not arrive in time, and Linux panics ("IO-APIC + timer doesn't work").
 */
#define QUICK_BOOT                                                                                 \
	"no_timer_check cryptomgr.notests "                                                        \
	"initcall_blacklist=load_system_certificate_list,init_encrypted,digsig_init "              \
	"i8042.noaux i8042.nokbd"

#endif
