/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtime of the test guests: a freestanding kernel in long mode with an identity mapping.
 * Interrupts are off, and there is one CPU unless the program starts others. It uses only
 * instructions that KVM's emulator supports, so it also runs where KVM interprets CPL 0. CPL 3 is
 * left only by page faults and interrupts.
 *
 * The command line selects a program with "program=NAME". Its return value goes to the debug-exit
 * port.
 */
#ifndef KVMSCOPE_TESTS_GUESTS_GUEST_H
#define KVMSCOPE_TESTS_GUESTS_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t program(void);

program program_hello, program_faults, program_timer, program_spaces, program_cpus, program_memory,
	program_spin, program_shares, program_xrstor, program_crash, program_reset,
	program_power_off, program_poke, program_pmu, program_debug, program_hostile,
	program_resets, program_sums, program_idle, program_skipped, program_gaps, program_plugged,
	program_unmapped;

/* Code and data of CPL 3. Functions are not inlined, so that they keep their symbols. */
#define USER_TEXT __attribute__((section(".user.text"), noinline, used))
#define USER_DATA __attribute__((section(".user.data")))

/* The command line and its NAME=VALUE words. */
extern const char *command_line;
bool option_is(const char *name, const char *value);
uint64_t option_number(const char *name, uint64_t otherwise); /* decimal, or hexadecimal with 0x */

void print(const char *text); /* to the serial port */
void print_number(uint64_t number);
void print_hex(uint64_t number);
_Noreturn void debug_exit(uint32_t value);

static inline void out8(uint16_t port, uint8_t value)
{
	__asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline void out16(uint16_t port, uint16_t value)
{
	__asm__ volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t in8(uint16_t port)
{
	uint8_t value;

	__asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline void out32(uint16_t port, uint32_t value)
{
	__asm__ volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint64_t read_cr2(void)
{
	uint64_t value;

	__asm__ volatile("movq %%cr2, %0" : "=r"(value));
	return value;
}

static inline void write_cr3(uint64_t value)
{
	__asm__ volatile("movq %0, %%cr3" : : "r"(value) : "memory");
}

/* The layout that start.S pushes. */
struct frame {
	uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
	uint64_t vector, error;
	uint64_t rip, cs, rflags, rsp, ss;
};

#define VECTOR_DB    1
#define VECTOR_UD    6
#define VECTOR_GP    13
#define VECTOR_PF    14
#define VECTOR_TIMER 0x40

/* A handler returns to frame->rip. A trap without a handler ends the guest with 0xfe. */
typedef void trap_handler(struct frame *frame);
void traps_init(void);
void traps_load(void); /* the same for another CPU: traps from CPL 0 go to the same handlers */
void trap_set(unsigned int vector, trap_handler *handler);

/*
 * Paging: the boot tables map 4 GiB one to one, and these functions add to them. TABLE pages come
 * from a pool.
 */
#define PAGE_PRESENT  1ull
#define PAGE_WRITABLE 2ull
#define PAGE_USER     4ull
#define PAGE_LARGE    0x80ull
extern uint64_t page_root[512], page_pointers[512], page_directories[4 * 512];
uint64_t *page_new(void);
/* Maps the 4 KiB page or (with PAGE_LARGE) 2 MiB page at VIRTUAL in the tables of ROOT. */
void page_map(uint64_t *root, uint64_t virtual, uint64_t physical, uint64_t flags);

/*
 * Calls FUNCTION at CPL 3, with interrupts enabled if INTERRUPTS is set, and returns after FUNCTION
 * has called user_exit(). Boot CPU only.
 */
void user_call(void (*function)(void), bool interrupts);
/* Leaves CPL 3: touches an unmapped address, which traps.c treats as the request to leave. */
void user_exit(void);

/* The local APIC. */
void lapic_init(void);
void lapic_timer(
	uint32_t count); /* periodic, in bus cycles of 1 ns, on VECTOR_TIMER; 0 stops the timer */
void lapic_end_of_interrupt(void);
uint32_t lapic_read(unsigned int offset); /* a register (SDM vol. 3A 11.4.1) */
void lapic_write(unsigned int offset, uint32_t value);
void lapic_start_other(uint32_t apic_id, uint8_t page);

/*
 * Starts CPU ID in long mode: it calls RUN, then halts. Waits until the CPU is up. CPUs are started
 * one at a time. Needs lapic_init().
 */
void other_cpu_run(uint32_t id, void (*run)(void));

/*
 * Starts CPU ID in the same way if it exists, without waiting. It must be the only other CPU, and
 * it reuses the stack of the previous one.
 */
void other_cpu_wake(uint32_t id, void (*run)(void));

#endif
