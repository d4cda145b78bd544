/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/call_site.h"

#include <string.h>

#include "vmm/guest/page_walk.h"

#define CALL_RELATIVE      0xe8
#define CALL_RELATIVE_SIZE 5
#define GROUP_5            0xff /* with REG 2 in ModRM: near indirect CALL */
#define REG_CALL           2

/* Bytes of the displacement, by ModRM and SIB. */
static size_t displacement_size(uint8_t mode, uint8_t base)
{
	if (mode == 1)
		return 1;
	return mode == 2 || base == 5 ? 4 : 0;
}

/* Bytes of the indirect CALL with OPERAND, its ModRM and SIB; 0: not a CALL. */
static size_t indirect_size(const uint8_t *operand)
{
	uint8_t mode = operand[0] >> 6, base = operand[0] & 7;

	if ((operand[0] >> 3 & 7) != REG_CALL)
		return 0;
	if (mode == 3)
		return 2;
	if (base == 4)
		return 3 + displacement_size(mode, operand[1] & 7);
	return 2 + displacement_size(mode, base);
}

static bool is_relative(const uint8_t *code, size_t size)
{
	return size >= CALL_RELATIVE_SIZE && code[size - CALL_RELATIVE_SIZE] == CALL_RELATIVE;
}

static bool is_indirect(const uint8_t *code, size_t size)
{
	for (size_t length = 2; length <= CALL_SITE_SIZE && length <= size; length++) {
		const uint8_t *begin = code + size - length;
		const uint8_t operand[2] = { begin[1], length > 2 ? begin[2] : 0 };

		if (begin[0] == GROUP_5 && indirect_size(operand) == length)
			return true;
	}
	return false;
}

bool call_site_matches(const uint8_t *code, size_t size)
{
	return is_relative(code, size) || is_indirect(code, size);
}

/* Code that matches both forms is ambiguous. */
bool call_site_target(const uint8_t *code, size_t size, uint64_t address, uint64_t *target)
{
	int32_t distance;

	if (!is_relative(code, size) || is_indirect(code, size))
		return false;
	memcpy(&distance, code + size - sizeof(distance), sizeof(distance));
	*target = address + (uint64_t)(int64_t)distance;
	return true;
}

#define PAGE         4096ull
#define FUNCTION_MAX (64ull << 10)
#define PLT_ENTRY    16ull
/* Bits of a page table entry: SDM vol. 3A, table 4-20. */
#define USER       (1ull << 2)
#define NO_EXECUTE (1ull << 63)

#define ENDBR64 "\xf3\x0f\x1e\xfa"
#define BND     0xf2
#define JUMP    "\xff\x25" /* through memory, RIP-relative */

static bool is_code(const struct guest_view *view, const struct guest_paging *paging, uint64_t gva)
{
	struct guest_translation translation;

	return !guest_translate(view, paging, gva, &translation) && translation.flags & USER &&
	       !(translation.flags & NO_EXECUTE);
}

/* Reads the bytes before ADDRESS; if the page before is unreadable, only those in its own page. */
static size_t read_before(const struct guest_view *view, const struct guest_paging *paging,
			  uint64_t address, uint8_t *code)
{
	size_t here = address % PAGE;

	if (!guest_read_virtual(view, paging, address - CALL_SITE_SIZE, code, CALL_SITE_SIZE))
		return CALL_SITE_SIZE;
	return here < CALL_SITE_SIZE &&
			       !guest_read_virtual(view, paging, address - here, code, here)
		       ? here
		       : 0;
}

/* A PLT entry jumps to the address in its slot: psABI for x86-64, 5.2 and 13.2. */
static uint64_t through_plt(const struct guest_view *view, const struct guest_paging *paging,
			    uint64_t target)
{
	uint8_t code[PLT_ENTRY];
	size_t at = 0;
	int32_t distance;
	uint64_t slot;

	if (guest_read_virtual(view, paging, target, code, sizeof(code)))
		return target;
	if (!memcmp(code, ENDBR64, 4))
		at += 4;
	if (code[at] == BND)
		at++;
	if (memcmp(code + at, JUMP, 2))
		return target;
	memcpy(&distance, code + at + 2, sizeof(distance));
	slot = target + at + 6 + (uint64_t)(int64_t)distance;
	return guest_read_virtual(view, paging, slot, &slot, sizeof(slot)) ? target : slot;
}

enum user_call user_call_classify(const struct guest_view *view, const struct guest_paging *paging,
				  uint64_t address, uint64_t ip)
{
	uint8_t code[CALL_SITE_SIZE];
	uint64_t target;
	size_t size;

	if (!is_code(view, paging, address - 1))
		return USER_CALL_NONE;
	size = read_before(view, paging, address, code);
	if (!call_site_matches(code, size))
		return USER_CALL_NONE;
	if (!call_site_target(code, size, address, &target))
		return USER_CALL_UNKNOWN;
	if (ip - target >= PLT_ENTRY)
		target = through_plt(view, paging, target);
	return ip - target < FUNCTION_MAX ? USER_CALL_HERE : USER_CALL_ELSEWHERE;
}
