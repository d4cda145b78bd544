/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_TESTS_UNIT_QUICK_BOOT_H
#define KVMSCOPE_TESTS_UNIT_QUICK_BOOT_H

/*
 * For the command line of Debian's kernels in emulators, where their boot is
 * not what is tested. Leaves out tests of ciphers, certificates and keyboards:
 * half a second in the rig, more on kvm_intel. And the check that the timer
 * works, in which ten ticks are given time to be seen: beside much other work
 * they are not, and Linux panics ("IO-APIC + timer doesn't work").
 */
#define QUICK_BOOT                                                                                 \
	"no_timer_check cryptomgr.notests "                                                        \
	"initcall_blacklist=load_system_certificate_list,init_encrypted,digsig_init "              \
	"i8042.noaux i8042.nokbd"

#endif
