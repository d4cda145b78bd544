/* SPDX-License-Identifier: Apache-2.0 */
/* A program during which a second CPU is plugged in and unplugged repeatedly. */
#include "tests/guests/guest.h"
#include "tests/guests/spin_loop.h"

#define OTHERS 2 /* from 1 on, one at a time */

/* Of QEMU's machine type "pc": docs/specs/acpi_cpu_hotplug.rst in QEMU's source. */
#define HOTPLUG_SELECTOR 0xaf00
#define HOTPLUG_FLAGS    0xaf04
#define FLAG_REMOVE      4u /* its removal is requested */
#define FLAG_EJECT       8u

USER_DATA volatile uint64_t plugged_turns;
USER_DATA static volatile uint64_t chunk;

/* Runs on the other CPU, at CPL 3 for as long as it is plugged in; it has no stack there. */
__attribute__((section(".user.text"), naked, used)) void plugged_works(void)
{
	__asm__ volatile("1:	incq plugged_turns\n\t"
			 "jmp 1b");
}

/* user_call() belongs to the first CPU. */
static void go_to_user(void)
{
	__asm__ volatile("pushq $0x23\n\t"
			 "pushq $0\n\t"
			 "pushq $2\n\t"
			 "pushq $0x2b\n\t"
			 "pushq $plugged_works\n\t"
			 "iretq");
}

SPIN_LOOP(share_first, section(".user.text"))

USER_TEXT static void first_works(void)
{
	share_first(chunk);
	user_exit();
}

/* Ejects the CPU as an operating system's ACPI code does on request. */
static void eject_where_asked(uint32_t id)
{
	out32(HOTPLUG_SELECTOR, id);
	if (in8(HOTPLUG_FLAGS) & FLAG_REMOVE)
		out8(HOTPLUG_FLAGS, FLAG_EJECT);
}

/*
 * The first CPU runs share_first() in turns of chunk=N loops. The other CPU, while it is plugged
 * in, runs plugged_works() until its removal is requested, and is then ejected. Never ends.
 */
uint32_t program_plugged(void)
{
	chunk = option_number("chunk", 100000000);
	lapic_init();
	out32(HOTPLUG_SELECTOR,
	      0); /* the first write makes QEMU use these registers instead of older ones */
	print("working\n");
	for (;;) {
		uint64_t before = plugged_turns;

		user_call(first_works, false);
		for (uint32_t id = 1; id <= OTHERS; id++) {
			if (plugged_turns == before)
				other_cpu_wake(id, go_to_user);
			eject_where_asked(id);
		}
	}
}
