/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest sees where there is neither RAM nor a device. */
#include "tests/guests/guest.h"

#define NO_PORT   0x1234
#define NO_MEMORY 0xe0000000ull

static uint8_t bytes[32];

static void show(const char *what)
{
	print(what);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		print(bytes[i] < 16 ? " 0" : " ");
		print_hex(bytes[i]);
		bytes[i] = 0x55;
	}
	print("\n");
}

#define FROM_MEMORY(instruction, count, to, from)                                                  \
	do {                                                                                       \
		uint64_t left = count;                                                             \
		const void *source = (const void *)(from);                                         \
		void *target = (void *)(to);                                                       \
		__asm__ volatile("cld; rep " instruction                                           \
				 : "+c"(left), "+S"(source), "+D"(target)                          \
				 : "d"(NO_PORT), "a"(0x1122334455667788)                           \
				 : "memory", "cc");                                                \
		print(left ? "a part of " : "all of ");                                            \
	} while (0)

static void show_reads(void)
{
	*(volatile uint8_t *)bytes = *(volatile uint8_t *)NO_MEMORY;
	*(volatile uint16_t *)(bytes + 2) = *(volatile uint16_t *)NO_MEMORY;
	*(volatile uint32_t *)(bytes + 4) = *(volatile uint32_t *)NO_MEMORY;
	*(volatile uint64_t *)(bytes + 8) = *(volatile uint64_t *)NO_MEMORY;
	bytes[16] = in8(NO_PORT);
	show("reads:");
}

/* Prints the results of single reads, and of string instructions with memory and ports. */
uint32_t program_unmapped(void)
{
	static uint8_t *const none = (uint8_t *)NO_MEMORY;

	show("at first:");
	show_reads();
	FROM_MEMORY("movsb", 5, bytes, none);
	show("memory to RAM by bytes:");
	FROM_MEMORY("movsq", 2, bytes, none + 8);
	show("memory to RAM by words:");
	FROM_MEMORY("movsb", 16, none, bytes);
	FROM_MEMORY("stosq", 16, none, bytes);
	FROM_MEMORY("movsb", 16, bytes, none);
	show("memory after writes:");
	FROM_MEMORY("insb", 7, bytes, none);
	show("port to RAM by bytes:");
	FROM_MEMORY("insl", 3, bytes, none);
	show("port to RAM by words:");
	FROM_MEMORY("insb", 8, none, bytes);
	FROM_MEMORY("outsb", 8, bytes, none);
	FROM_MEMORY("outsl", 2, bytes, none);
	FROM_MEMORY("movsb", 8, bytes, none);
	show("memory after port I/O:");
	return 0;
}
