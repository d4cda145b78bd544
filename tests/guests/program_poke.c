/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile guest: accesses of all widths to ports and device memory, with random values. */
#include "tests/guests/guest.h"

#define DEVICES      0xd0000000ull
#define DEVICES_MASK 0x7fffull

static uint64_t state;

/* xorshift64 */
static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Accesses that would end the guest at once are left out. */
static bool ends_guest(uint16_t port)
{
	return (port >= 0xf4 - 3 && port <= 0xf4 + 3) || (port >= 0x64 - 3 && port <= 0x64) ||
	       (port >= 0xcf9 - 3 && port <= 0xcf9);
}

/* Our devices' ports are chosen more often than others. */
static uint16_t choose_port(void)
{
	static const uint16_t known[] = { 0x3f8, 0x60, 0x65, 0x70, 0x71, 0x600, 0x608, 0x500 };
	uint64_t choice = next();
	uint16_t port = choice & 3 ? known[(choice >> 8) % (sizeof(known) / sizeof(*known))] +
					     (choice >> 4 & 7)
				   : (uint16_t)(choice >> 16);

	return ends_guest(port) ? 0x3f8 : port;
}

static void poke_port(void)
{
	uint16_t port = choose_port();
	uint32_t value = (uint32_t)next(), read;

	switch (next() % 6) {
	case 0:
		out8(port, (uint8_t)value);
		break;
	case 1:
		out16(port, (uint16_t)value);
		break;
	case 2:
		out32(port, value);
		break;
	case 3:
		in8(port);
		break;
	case 4:
		__asm__ volatile("inw %1, %w0" : "=a"(read) : "Nd"(port));
		break;
	default:
		__asm__ volatile("inl %1, %0" : "=a"(read) : "Nd"(port));
	}
}

static void poke_memory(void)
{
	uint64_t address = DEVICES + (next() & DEVICES_MASK), value = next();

	/* Small values have more effect in registers; some of them are GPAs of RAM. */
	if (value & 1)
		value >>= 40;
	switch (next() % 6) {
	case 0:
		*(volatile uint8_t *)address = (uint8_t)value;
		break;
	case 1:
		*(volatile uint16_t *)address = (uint16_t)value;
		break;
	case 2:
		*(volatile uint32_t *)(address & ~3ull) = (uint32_t)value;
		break;
	case 3:
		*(volatile uint64_t *)address = value;
		break;
	case 4:
		*(volatile uint32_t *)(address & ~3ull);
		break;
	default:
		*(volatile uint64_t *)address;
	}
}

/* count=N accesses from seed=N. Returns 0 unless an access ends the guest earlier. */
uint32_t program_poke(void)
{
	uint64_t count = option_number("count", 1000);

	state = option_number("seed", 1) * 0x9e3779b97f4a7c15ull | 1;
	for (uint64_t i = 0; i < count; i++) {
		if (next() & 1)
			poke_port();
		else
			poke_memory();
	}
	return 0;
}
