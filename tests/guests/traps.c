/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guests/guest.h"

#define VECTORS              128
#define STUB_SIZE            16
#define EXIT_UNEXPECTED_TRAP 0xfe
#define RFLAGS_IF            0x200ull
#define RFLAGS_RESERVED      2ull

/* Canonical, and not mapped by our page tables. */
#define USER_EXIT_ADDRESS 0x7f0000000000ull

struct gate {
	uint16_t offset_low, selector;
	uint8_t ist, type;
	uint16_t offset_middle;
	uint32_t offset_high, reserved;
};

static struct tss {
	uint32_t reserved;
	uint64_t rsp[3];
	uint64_t rest[11];
} __attribute__((packed)) tss;

static struct gate idt[VECTORS];
static trap_handler *handlers[VECTORS];
static uint8_t trap_stack[16384] __attribute__((aligned(16)));

extern const uint8_t trap_stubs[];
extern uint64_t gdt[];
extern uint8_t user_stack[];
void user_enter(void (*function)(void), uint64_t stack, uint64_t rflags);
_Noreturn void user_leave(void);
void trap_dispatch(struct frame *frame);

struct pointer {
	uint16_t limit;
	uint64_t base;
} __attribute__((packed));

void traps_load(void)
{
	struct pointer pointer = { sizeof(idt) - 1, (uint64_t)idt };

	__asm__ volatile("lidt %0" : : "m"(pointer));
}

void traps_init(void)
{
	uint64_t base = (uint64_t)&tss, limit = sizeof(tss) - 1;

	for (unsigned int i = 0; i < VECTORS; i++) {
		uint64_t stub = (uint64_t)trap_stubs + i * STUB_SIZE;

		idt[i] = (struct gate){ .offset_low = (uint16_t)stub,
					.selector = 0x10,
					.type = 0x8e,
					.offset_middle = (uint16_t)(stub >> 16),
					.offset_high = (uint32_t)(stub >> 32) };
	}
	tss.rsp[0] = (uint64_t)(trap_stack + sizeof(trap_stack));
	gdt[6] = limit | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
	gdt[7] = base >> 32;
	traps_load();
	__asm__ volatile("ltr %w0" : : "r"(0x30));
}

void trap_set(unsigned int vector, trap_handler *handler)
{
	handlers[vector] = handler;
}

void trap_dispatch(struct frame *frame)
{
	if (frame->vector == VECTOR_PF && (frame->cs & 3) == 3 && read_cr2() == USER_EXIT_ADDRESS)
		user_leave();
	if (frame->vector < VECTORS && handlers[frame->vector]) {
		handlers[frame->vector](frame);
		return;
	}
	print("unexpected trap ");
	print_number(frame->vector);
	print(" at ");
	print_number(frame->rip);
	print("\n");
	debug_exit(EXIT_UNEXPECTED_TRAP);
}

void user_call(void (*function)(void), bool interrupts)
{
	/* As after a call: RSP + 8 is a multiple of 16. */
	user_enter(function, (uint64_t)user_stack - 8,
		   RFLAGS_RESERVED | (interrupts ? RFLAGS_IF : 0));
}

USER_TEXT void user_exit(void)
{
	for (;;)
		*(volatile uint8_t *)USER_EXIT_ADDRESS;
}
