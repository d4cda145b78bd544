/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guests/guest.h"

/* Registers of the local APIC (SDM vol. 3A 11.4.1), identity-mapped like everything below 4 GiB. */
#define LAPIC            0xfee00000ull
#define END_OF_INTERRUPT 0x0b0
#define SPURIOUS         0x0f0
#define COMMAND_LOW      0x300
#define COMMAND_HIGH     0x310
#define TIMER            0x320
#define TIMER_INITIAL    0x380
#define TIMER_DIVIDE     0x3e0

#define ENABLED         0x100u
#define SPURIOUS_VECTOR 0x7f
#define TIMER_PERIODIC  0x20000u
#define DIVIDE_BY_1     0xb
#define INIT_ASSERT     0x4500u
#define STARTUP         0x4600u

uint32_t lapic_read(unsigned int offset)
{
	return *(volatile uint32_t *)(LAPIC + offset);
}

void lapic_write(unsigned int offset, uint32_t value)
{
	*(volatile uint32_t *)(LAPIC + offset) = value;
}

static void ignore(struct frame *frame)
{
}

void lapic_init(void)
{
	trap_set(SPURIOUS_VECTOR, ignore);
	lapic_write(SPURIOUS, ENABLED | SPURIOUS_VECTOR);
}

void lapic_timer(uint32_t count)
{
	lapic_write(TIMER_DIVIDE, DIVIDE_BY_1);
	lapic_write(TIMER, TIMER_PERIODIC | VECTOR_TIMER);
	lapic_write(TIMER_INITIAL, count);
}

void lapic_end_of_interrupt(void)
{
	lapic_write(END_OF_INTERRUPT, 0);
}

void lapic_start_other(uint32_t apic_id, uint8_t page)
{
	lapic_write(COMMAND_HIGH, apic_id << 24);
	lapic_write(COMMAND_LOW, INIT_ASSERT);
	lapic_write(COMMAND_HIGH, apic_id << 24);
	lapic_write(COMMAND_LOW, STARTUP | page);
}
