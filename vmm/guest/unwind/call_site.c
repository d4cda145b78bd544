// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/unwind/call_site.h"

#include <string.h>

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
