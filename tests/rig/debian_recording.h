/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One recording of each of Debian's kernels, of which several tests ask
 * different things: booting it takes longer than what they ask for.
 */
#ifndef KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H
#define KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H

/*
 * VERSION's kernel with two vCPUs and page tables not isolated (pti "off") or
 * isolated ("on"), sampled 199 times a second while tests/rig/guest/tasks runs
 * for 4 s; with "on", "remap 4" behind it; with "off", it before writes its /proc/kallsyms to its disk, then
 * runs "workload shares 5", and where debug registers work each write of
 * DEBIAN_WATCHED is a hit. The directory with perf.data, the build-id cache .debug, and
 * disk. Made by the first call, for the life of the program; NULL if it could
 * not be, which is the test's failure or skip. RIG_REQUIRED() before.
 */
const char *debian_recording(const char *version, const char *pti);

/*
 * apic_timer_irqs of irq_stat (arch/x86/include/asm/hardirq.h,
 * irq_cpustat_t), which each CPU has for itself and adds 1 to at each of its timer's interrupts.
 */
#define DEBIAN_WATCHED "irq_stat+8:4:w"

#define TASKS_PROGRAM  "build/rig/tasks"
#define TASKS_START    0x20000000ull /* of its image in memory: tests/rig/module.mk */
#define FRAMES_PROGRAM "build/rig/frames"

/* The initrd with the programs of the guests; NULL as debian_recording(). */
const char *debian_recording_initrd(const char *version);

#endif
