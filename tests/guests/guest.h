/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the test guests are written on: a freestanding kernel in long mode,
 * mapped one to one, interrupts off, on one CPU unless it starts others. It
 * keeps to instructions that KVM's emulator knows, so that it also runs where
 * KVM interprets CPL0; CPL3 comes back by page faults and interrupts alone.
 *
 * A program is chosen by "program=NAME" on the command line; what it returns
 * goes to the debug-exit port.
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
	program_resets, program_sums, program_idle, program_skipped, program_gaps, program_plugged;

/* Code and data of CPL3. Functions are not inlined, so that they keep their names. */
#define USER_TEXT __attribute__((section(".user.text"), noinline, used))
#define USER_DATA __attribute__((section(".user.data")))

/* The command line and its words NAME=VALUE. */
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

/* As start.S pushes it. */
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

/* Handlers return to where the trap came from, at frame->rip. Without one a trap ends the guest
 * with 0xfe. */
typedef void trap_handler(struct frame *frame);
void traps_init(void);
void traps_load(void); /* on another CPU: the same handlers, for traps from CPL0 */
void trap_set(unsigned int vector, trap_handler *handler);

/* Paging: the boot tables map 4 GiB one to one; these add to them. TABLE pages come from a pool. */
#define PAGE_PRESENT  1ull
#define PAGE_WRITABLE 2ull
#define PAGE_USER     4ull
#define PAGE_LARGE    0x80ull
extern uint64_t page_root[512], page_pointers[512], page_directories[4 * 512];
uint64_t *page_new(void);
/* Maps the 4 KiB page or (with PAGE_LARGE) 2 MiB page at VIRTUAL in the tables of ROOT. */
void page_map(uint64_t *root, uint64_t virtual, uint64_t physical, uint64_t flags);

/*
 * Calls FUNCTION at CPL3, interrupts on where INTERRUPTS is, and returns once
 * it has called user_exit(). The boot CPU only.
 */
void user_call(void (*function)(void), bool interrupts);
/* From CPL3: touches an address that nobody maps, which traps.c takes for the wish to leave. */
void user_exit(void);

/* The local APIC. */
void lapic_init(void);
void lapic_timer(
	uint32_t count); /* periodic, in bus cycles of 1 ns; vector VECTOR_TIMER; 0 stops */
void lapic_end_of_interrupt(void);
uint32_t lapic_read(unsigned int offset); /* a register (SDM vol. 3A 11.4.1) */
void lapic_write(unsigned int offset, uint32_t value);
void lapic_start_other(uint32_t apic_id, uint8_t page);

/* Starts CPU ID in long mode, one after the other: it calls RUN, then halts. Waits until it is up;
 * needs lapic_init(). */
void other_cpu_run(uint32_t id, void (*run)(void));

/* Starts CPU ID so, if it is there; it is the only other one, and has the stack of the one before.
 * Nobody waits. */
void other_cpu_wake(uint32_t id, void (*run)(void));

#endif
