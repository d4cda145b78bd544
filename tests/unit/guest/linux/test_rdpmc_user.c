/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/error.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/rdpmc_sites.h"

#define LARGE_PAGE (2u << 20)
#define TEXT       0xffffffff81000000ull
#define TEXT_GPA   0x200000ull
#define FUNCTION   (TEXT + 0x7690)
#define X86_PMU    (TEXT + 0x100000)
#define ATTRIBUTE  (X86_PMU + 0x110)

/* The displacement of an operand that is relative to the end of the instruction, END bytes into the
 * function.
 */
#define BYTE(at, end, i)  ((uint64_t)((at) - (FUNCTION + (end))) >> 8 * (i)&0xff)
#define RELATIVE(at, end) BYTE(at, end, 0), BYTE(at, end, 1), BYTE(at, end, 2), BYTE(at, end, 3)

struct fixture {
	struct flat_guest guest;
	struct guest_kernel kernel;
};

static void fixture_open(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	flat_guest_create(&fixture->guest, 16u << 20);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, TEXT, TEXT_GPA,
		       LARGE_PAGE, 0);
	memset(fixture->guest.memory + TEXT_GPA, 0x90, LARGE_PAGE);
	fixture->kernel = (struct guest_kernel){ .paging = fixture->guest.registers.paging,
						 .symbols = symbols_new() };
	symbols_add(fixture->kernel.symbols, FUNCTION, 0x30, 't', "get_attr_rdpmc", NULL);
}

static void fixture_close(struct fixture *fixture)
{
	symbols_free(fixture->kernel.symbols);
	flat_guest_destroy(&fixture->guest);
}

/* Searches get_attr_rdpmc(), which has SIZE bytes of CODE. It and x86_pmu have their addresses in
 * Debian's 6.1. */
static int find_in(const uint8_t *code, size_t size, uint64_t *address)
{
	struct fixture fixture;
	int error;

	fixture_open(&fixture);
	symbols_add(fixture.kernel.symbols, X86_PMU, 0x200, 'd', "x86_pmu", NULL);
	symbols_finish(fixture.kernel.symbols);
	memcpy(fixture.guest.memory + TEXT_GPA + (FUNCTION - TEXT), code, size);
	error = rdpmc_user_find(address, &fixture.guest.view, &fixture.kernel);
	fixture_close(&fixture);
	return error;
}

#define FIND(address, ...)                                                                         \
	({                                                                                         \
		const uint8_t code[] = { __VA_ARGS__ };                                            \
		find_in(code, sizeof(code), address);                                              \
	})

TEST(rdpmc_user, switch_is_the_variable_that_its_function_reads)
{
	uint64_t address = 0;

	/* Debian's 5.10, 6.1 and 6.12: call __fentry__; mov ecx, [rip + x]; mov rdi, rdx; mov esi,
	 * 40; ret */
	CHECK_EQUAL(FIND(&address, 0xe8, 0, 0, 0, 0, 0x8b, 0x0d, RELATIVE(ATTRIBUTE, 11), 0x48,
			 0x89, 0xd7, 0xbe, 0x28, 0, 0, 0, 0xc3),
		    0);
	CHECK_EQUAL(address, ATTRIBUTE);
	/* By its address: mov edx, [x] */
	CHECK_EQUAL(FIND(&address, 0x8b, 0x14, 0x25, 0x20, 0x01, 0x10, 0x81, 0xc3), 0);
	CHECK_EQUAL(address, X86_PMU + 0x120);
}

TEST(rdpmc_user, other_code_is_refused)
{
	uint64_t address = 0;

	/* beside x86_pmu; a store; 64 bits; not of 4 bytes' alignment; nothing */
	CHECK_EQUAL(FIND(&address, 0x8b, 0x0d, RELATIVE(X86_PMU + 0x200, 6), 0xc3), -ENOTSUP);
	CHECK_EQUAL(FIND(&address, 0x89, 0x0d, RELATIVE(ATTRIBUTE, 6), 0xc3), -ENOTSUP);
	CHECK_EQUAL(FIND(&address, 0x48, 0x8b, 0x0d, RELATIVE(ATTRIBUTE, 7), 0xc3), -ENOTSUP);
	CHECK_EQUAL(FIND(&address, 0x8b, 0x0d, RELATIVE(ATTRIBUTE + 2, 6), 0xc3), -ENOTSUP);
	CHECK_EQUAL(FIND(&address, 0xc3), -ENOTSUP);
	CHECK(strstr(error_message(), "get_attr_rdpmc reads nothing of x86_pmu"));
	/* two variables */
	CHECK_EQUAL(FIND(&address, 0x8b, 0x0d, RELATIVE(ATTRIBUTE, 6), 0x8b, 0x0d,
			 RELATIVE(ATTRIBUTE + 4, 12), 0xc3),
		    -ENOTSUP);
	CHECK(strstr(error_message(), "more than one int"));
}

TEST(rdpmc_user, kernel_without_it_is_an_error)
{
	uint64_t address;

	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	symbols_finish(fixture.kernel.symbols);
	CHECK_EQUAL(rdpmc_user_find(&address, &fixture.guest.view, &fixture.kernel), -ENOENT);
	CHECK(strstr(error_message(), "no symbol x86_pmu"));
	fixture.kernel.paging.cr3 = 0x3000;
	symbols_reopen(fixture.kernel.symbols);
	symbols_add(fixture.kernel.symbols, X86_PMU, 0x200, 'd', "x86_pmu", NULL);
	symbols_finish(fixture.kernel.symbols);
	CHECK_EQUAL(rdpmc_user_find(&address, &fixture.guest.view, &fixture.kernel), -EFAULT);
}
