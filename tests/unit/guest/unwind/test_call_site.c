/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a call ends at an address. The bytes are those that GNU as generates for the lines beside
 * them. */
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/call_site.h"

/* At the end of CALL_SITE_SIZE bytes, after NOPs. */
static bool ends(const uint8_t *code, size_t size)
{
	uint8_t bytes[CALL_SITE_SIZE];

	memset(bytes, 0x90, sizeof(bytes));
	memcpy(bytes + sizeof(bytes) - size, code, size);
	return call_site_matches(bytes, sizeof(bytes));
}

#define ENDS(...) ends((const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

TEST(call_site, every_form_of_call_is_recognized)
{
	CHECK(ENDS(0xe8, 0x10, 0x20, 0x30, 0x40));       /* call .+0x40302015 */
	CHECK(ENDS(0xff, 0xd0));                         /* call *%rax */
	CHECK(ENDS(0x41, 0xff, 0xd4));                   /* call *%r12 */
	CHECK(ENDS(0xff, 0x10));                         /* call *(%rax) */
	CHECK(ENDS(0xff, 0x50, 0x18));                   /* call *0x18(%rax) */
	CHECK(ENDS(0xff, 0x93, 0, 1, 0, 0));             /* call *0x100(%rbx) */
	CHECK(ENDS(0xff, 0x15, 0x78, 0x56, 0x34, 0x12)); /* call *0x12345678(%rip) */
	CHECK(ENDS(0xff, 0x14, 0x24));                   /* call *(%rsp) */
	CHECK(ENDS(0xff, 0x54, 0x24, 0x08));             /* call *0x8(%rsp) */
	CHECK(ENDS(0xff, 0x94, 0x24, 0, 1, 0, 0));       /* call *0x100(%rsp) */
	CHECK(ENDS(0xff, 0x14, 0xc5, 0, 0x10, 0, 0));    /* call *0x1000(,%rax,8) */
	CHECK(ENDS(0x41, 0xff, 0x54, 0xc5, 0));          /* call *(%r13,%rax,8) */
	CHECK(ENDS(0xff, 0x94, 0xe3, 0, 0x10, 0,
		   0)); /* call *0x1000(%rbx,%r12,8) without its REX */
}

TEST(call_site, other_code_is_not_a_call)
{
	CHECK(!ENDS(0x90));
	CHECK(!ENDS(0xe9, 0x10, 0x20, 0x30, 0x40)); /* jmp .+0x40302015 */
	CHECK(!ENDS(0xff, 0xe0));                   /* jmp *%rax */
	CHECK(!ENDS(0xff, 0x60, 0x18));             /* jmp *0x18(%rax) */
	CHECK(!ENDS(0xff, 0x30));                   /* push (%rax) */
	CHECK(!ENDS(0xff, 0x10, 0x90));             /* call *(%rax); nop */
	CHECK(!ENDS(0xff, 0x50));                   /* a displacement short of call *disp8(%rax) */
	CHECK(!ENDS(0xff, 0x14));                   /* a SIB short of a CALL */
	CHECK(!ENDS(0xc3));                         /* ret: a function begins there */
}

TEST(call_site, start_of_a_page_limits_the_code)
{
	static const uint8_t call[] = { 0xe8, 0x10, 0x20, 0x30, 0x40 };

	CHECK(call_site_matches(call, sizeof(call)));
	CHECK(!call_site_matches(call + 1, sizeof(call) - 1));
	CHECK(!call_site_matches(call, 0));
}

TEST(call_site, direct_call_has_a_target)
{
	static const uint8_t forward[] = { 0xe8, 0x10, 0x20, 0x30, 0x40 },
			     back[] = { 0xe8, 0xf0, 0xff, 0xff, 0xff },
			     through_memory[] = { 0xff, 0x15, 0x78, 0x56, 0x34, 0x12 },
			     either[] = { 0xe8, 0x89, 0xe8, 0xff, 0xd0 };
	uint64_t target = 0;

	CHECK(call_site_target(forward, sizeof(forward), 0x1000, &target));
	CHECK_EQUAL(target, 0x40303010);
	CHECK(call_site_target(back, sizeof(back), 0x7f0000001000, &target));
	CHECK_EQUAL(target, 0x7f0000000ff0);
	CHECK(!call_site_target(through_memory, sizeof(through_memory), 0x1000, &target));
	CHECK(!call_site_target(either, sizeof(either), 0x1000, &target));
	CHECK(!call_site_target(forward + 1, sizeof(forward) - 1, 0x1000, &target));
}
