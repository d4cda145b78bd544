// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/unwind/user_call.h"

#include <stdbool.h>
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_site.h"

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
