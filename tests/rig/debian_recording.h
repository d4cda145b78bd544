/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One recording of each of Debian's kernels, of which several tests ask
 * different things: booting it takes longer than what they ask for.
 */
#ifndef KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H
#define KVMSCOPE_TESTS_RIG_DEBIAN_RECORDING_H

#include <stdbool.h>

/*
 * VERSION's kernel with two vCPUs and page tables isolated (pti "on") or not
 * ("off"), sampled while tests/rig/guest/tasks runs for 4 s.
 *
 * With "on" it before writes its /proc/kallsyms and its kernel's code to its disk, then runs
 * "workload shares 5" and "frames 2", and where debug registers work each write of DEBIAN_WATCHED
 * is a hit; 199 times a second. With "off" it is sampled 999 times a second from the begin of the
 * user land on: tests/rig/guest-userland (the guest's perf.data is at the begin of disk), then
 * tasks, "remap 4", "bpf 5" and "exceptions 2", and, with an agent that comes then, the user land
 * again. That is too long for isolated page tables: in about every second such run on 6.1 the
 * kernel died in its entry code, with those of user mode in use, a fault of the emulated processor.
 *
 * The directory with perf.data, the build-id cache .debug, and
 * disk. Made by the first call, for the life of the program; NULL if it could
 * not be, which is the test's failure or skip. RIG_REQUIRED() before.
 */
const char *debian_recording(const char *version, const char *pti);

/* What VERSION's guests and kvmscope said, when both recordings were made. */
const char *debian_recording_output(const char *version);

/* The kernel whose user land runs longer, for shares within 3 points and distributions of stacks.
 */
#define DEBIAN_LONGER "6.1"

/* A disk with the user land, and its files, for --symfs. */
#define USERLAND_DISK  "build/rig/userland.ext4"
#define USERLAND_FILES USERLAND_DISK ".files"

/* Makes both; false: it could not be, which is the test's failure. debian_recording() has made
 * them. */
bool debian_recording_make_disk(void);

/*
 * apic_timer_irqs of irq_stat (arch/x86/include/asm/hardirq.h,
 * irq_cpustat_t), which each CPU has for itself and adds 1 to at each of its timer's interrupts.
 */
#define DEBIAN_WATCHED "irq_stat+8:4:w"

#define TASKS_PROGRAM "build/rig/tasks"
#define TASKS_START   0x20000000ull /* of its image in memory: tests/rig/module.mk */
/* What /proc/PID/maps of the guest says of its copies. */
#define JAILED_IMAGE   "/tmp/jail/inside"
#define LAYERED_IMAGE  "/tmp/layers/merged/layered"
#define DELETED_IMAGE  "/tmp/deleted (deleted)"
#define MEMORY_IMAGE   "/memfd:tasks (deleted)"
#define FRAMES_PROGRAM "build/rig/frames"

/* The initrd with the programs of the guests; NULL as debian_recording(). */
const char *debian_recording_initrd(const char *version);

#endif
