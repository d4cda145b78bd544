/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This machine's processor, as perf.data files name it. Guests of kvmscope run see the same one;
 * those of other VMMs may see another model, and perf kvm record writes the host's, too. Any
 * thread; the strings are static.
 */
#ifndef KVMSCOPE_SESSION_HOST_CPU_H
#define KVMSCOPE_SESSION_HOST_CPU_H

/* The brand string (SDM vol. 2A, CPUID 0x80000002 to 4); "": there is none. */
const char *host_cpu_description(void);

/* "VENDOR,FAMILY,MODEL,STEPPING", as perf writes it (tools/perf/arch/x86/util/header.c). */
const char *host_cpu_id(void);

#endif
