/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks made by hand. The kernel's code is a row of slots of 16 bytes, each with its own ORC
 * entry; slot N is at code(N).
 */
#ifndef KVMSCOPE_TESTS_UNIT_UNWIND_FIXTURE_H
#define KVMSCOPE_TESTS_UNIT_UNWIND_FIXTURE_H

#include <string.h>

#include "tests/unit/flat_guest.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/unwind/unwind.h"

#define GUEST_SIZE     (1u << 20)
#define TEXT           0xffffffff81000000ull
#define IPS            0xffffffff82000000ull
#define STACK          0xffffc90000010000ull /* maps to STACK_GPA, 16 KiB */
#define STACK_GPA      0x10000ull
#define USER_STACK     0x7ffc00000000ull /* maps to USER_STACK_GPA, 4 KiB */
#define USER_STACK_GPA 0x20000ull
#define TEXT_GPA       0x30000ull
#define USER_TEXT      0x400000ull /* maps to USER_TEXT_GPA, 20 KiB */
#define USER_TEXT_GPA  0x50000ull
#define USER_TEXT_SIZE 0x5000ull
#define SLOTS          32
#define STEP           16
#define REGISTERS_SIZE 168 /* struct pt_regs */

/* ORC entries in the format since 6.4. */
#define CALL_SP          0x205
#define CALL_SP_BP       0x215
#define CALL_BP          0x214
#define CALL_SP_INDIRECT 0x209
#define CALL_R10         0x206
#define REGS_SP          0xb05
#define PARTIAL_SP       0xc05
#define END              0x100
#define NONE             0x000

struct fixture {
	struct flat_guest guest;
	uint8_t ips[SLOTS * 4], entries[SLOTS * ORC_ENTRY_SIZE];
	struct orc_table table;
	struct kernel_orc unwinder;
	uint64_t addresses[16];
	struct guest_callchain chain;
};

static inline uint64_t code(unsigned int slot)
{
	return TEXT + slot * STEP + 4;
}

static inline void set_slot(struct fixture *fixture, unsigned int slot, int16_t sp_offset,
			    int16_t bp_offset, uint16_t flags)
{
	uint8_t *entry = fixture->entries + slot * ORC_ENTRY_SIZE;

	memcpy(entry, &sp_offset, 2);
	memcpy(entry + 2, &bp_offset, 2);
	memcpy(entry + 4, &flags, 2);
}

static inline void map_user_text(struct fixture *fixture, uint64_t gva)
{
	for (uint64_t at = 0; at < USER_TEXT_SIZE; at += 4096)
		flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, gva + at,
			       USER_TEXT_GPA + at, 4096, 4);
}

static inline uint8_t *user_code(struct fixture *fixture, uint64_t address)
{
	return fixture->guest.memory + USER_TEXT_GPA + (address - USER_TEXT);
}

/* call *%rax that ends at ADDRESS. */
static inline void put_user_call(struct fixture *fixture, uint64_t address)
{
	memcpy(user_code(fixture, address) - 2, "\xff\xd0", 2);
}

static inline void make(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	flat_guest_create(&fixture->guest, GUEST_SIZE);
	for (uint64_t at = 0; at < 0x4000; at += 4096)
		flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, STACK + at,
			       STACK_GPA + at, 4096, 0);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, USER_STACK,
		       USER_STACK_GPA, 4096, 4);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, TEXT, TEXT_GPA, 4096,
		       0);
	map_user_text(fixture, USER_TEXT);
	put_user_call(fixture, 0x402000);
	put_user_call(fixture, 0x403000);
	for (uint32_t i = 0; i < SLOTS; i++) {
		int32_t relative = (int32_t)(TEXT + i * STEP - (IPS + i * 4));

		memcpy(fixture->ips + i * 4, &relative, 4);
		set_slot(fixture, i, 8, 0, CALL_SP);
	}
	fixture->table = (struct orc_table){ .start = TEXT,
					     .end = TEXT + SLOTS * STEP,
					     .ips_gva = IPS,
					     .ips = fixture->ips,
					     .entries = fixture->entries,
					     .count = SLOTS };
	fixture->unwinder = (struct kernel_orc){ .paging = fixture->guest.registers.paging,
						 .format = ORC_FORMAT_SIGNAL,
						 .tables = &fixture->table,
						 .table_count = 1 };
	fixture->chain.addresses = fixture->addresses;
	fixture->chain.capacity = 16;
	fixture->guest.registers.rip = code(1);
	fixture->guest.registers.rsp = STACK;
}

static inline void destroy(struct fixture *fixture)
{
	flat_guest_destroy(&fixture->guest);
}

/* The 8 bytes at OFFSET of the kernel's stack. */
static inline void push(struct fixture *fixture, uint64_t offset, uint64_t value)
{
	flat_guest_write_u64(&fixture->guest, STACK_GPA + offset, value);
}

/* A call of five bytes that ends before ADDRESS. */
static inline void put_kernel_call(struct fixture *fixture, uint64_t address)
{
	fixture->guest.memory[TEXT_GPA + (address - TEXT) - 5] = 0xe8;
}

static inline void push_user(struct fixture *fixture, uint64_t offset, uint64_t value)
{
	flat_guest_write_u64(&fixture->guest, USER_STACK_GPA + offset, value);
}

/* struct pt_regs at OFFSET of the kernel's stack. */
static inline void push_registers(struct fixture *fixture, uint64_t offset, uint64_t ip,
				  uint64_t cs, uint64_t sp, uint64_t bp)
{
	push(fixture, offset + 4 * 8, bp);
	push(fixture, offset + 16 * 8, ip);
	push(fixture, offset + 17 * 8, cs);
	push(fixture, offset + 19 * 8, sp);
}

static inline void unwind(struct fixture *fixture)
{
	guest_unwind(&fixture->unwinder, &fixture->guest.view, &fixture->guest.registers, NULL,
		     &fixture->chain);
}

#endif
