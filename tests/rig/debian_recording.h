/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One recording of each of Debian's kernels, shared by several tests, because booting takes longer
 * than checking.
 */
#ifndef KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H
#define KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H

#include <stdbool.h>

/*
 * VERSION's kernel with two vCPUs and page tables isolated (pti "on") or not ("off"), sampled while
 * tests/rig/guest/tasks runs for 4 s.
 *
 * With "on", the guest first writes its /proc/kallsyms and its kernel's code to its disk, then runs
 * "workload shares 5" and "frames 2"; if debug registers work, each write of DEBIAN_WATCHED is a
 * hit. The guest is sampled at 199 Hz.
 *
 * With "off", the guest is sampled at 999 Hz from the beginning of tests/rig/guest-userland (the
 * guest's perf.data is at the beginning of the disk), then of tasks, "remap 4", "bpf 5" and
 * "exceptions 2", and, after the agent has started, of guest-userland again. This is too long for
 * isolated page tables: in about every second such run on 6.1 the kernel died in its entry code
 * with the page tables of user mode active, which is a fault of the emulated processor.
 *
 * Returns the directory with perf.data, the build-id cache .debug, and disk. The first call makes
 * the recording for the lifetime of the program. NULL if that failed, which is recorded as the
 * test's failure or skip. Call RIG_REQUIRED() before.
 */
const char *debian_recording(const char *version, const char *pti);

/* The output of VERSION's guests and of kvmscope after both recordings. */
const char *debian_recording_output(const char *version);

/*
 * The kernel whose user land runs longer, for shares within 3 points and distributions of stacks.
 */
#define DEBIAN_LONGER "6.1"

/* A disk with the user land, and its files for --symfs. */
#define USERLAND_DISK  "build/rig/userland.ext4"
#define USERLAND_FILES USERLAND_DISK ".files"

/* Creates both; false: not possible, which fails the test. debian_recording() has created them. */
bool debian_recording_make_disk(void);

/*
 * apic_timer_irqs of irq_stat (arch/x86/include/asm/hardirq.h, irq_cpustat_t): a per-CPU variable
 * that each CPU increments at each of its timer interrupts.
 */
#define DEBIAN_WATCHED "irq_stat+8:4:w"

#define TASKS_PROGRAM "build/rig/tasks"
#define TASKS_START   0x20000000ull /* its image in memory: tests/rig/module.mk */
/* The lines of /proc/PID/maps in the guest about the copies. */
#define JAILED_IMAGE   "/tmp/jail/inside"
#define LAYERED_IMAGE  "/tmp/layers/merged/layered"
#define DELETED_IMAGE  "/tmp/deleted (deleted)"
#define MEMORY_IMAGE   "/memfd:tasks (deleted)"
#define FRAMES_PROGRAM "build/rig/frames"

/* The initrd with the guests' programs; NULL as for debian_recording(). */
const char *debian_recording_initrd(const char *version);

#endif
