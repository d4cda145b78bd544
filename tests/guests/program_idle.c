/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guests/guest.h"

static void on_tick(struct frame *frame)
{
	lapic_end_of_interrupt();
}

/* Never ends: halts and wakes up timer=HZ (default 4) times a second, like an idle kernel. */
uint32_t program_idle(void)
{
	trap_set(VECTOR_TIMER, on_tick);
	lapic_init();
	lapic_timer((uint32_t)(1000000000 / option_number("timer", 4)));
	print("idle\n");
	for (;;)
		__asm__ volatile("sti\n\thlt\n\tcli" : : : "memory");
}
