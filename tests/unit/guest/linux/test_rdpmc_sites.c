/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "shared/error.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/rdpmc_sites.h"

#define LARGE_PAGE  (2u << 20)
#define TEXT        0xffffffff81000000ull
#define TEXT_GPA    0x200000ull
#define TEXT_SIZE   0x30000ull
#define MODULE      0xffffffffc0200000ull
#define MODULE_GPA  0x400000ull
#define PART_BORDER 65535 /* where the search begins a part */

#define RDPMC 0x0f, 0x33
#define RET   0xc3

struct fixture {
	struct flat_guest guest;
	struct guest_kernel kernel;
	struct guest_module module;
	struct rdpmc_sites sites;
};

/* A kernel of NOPs with one symbol, at its start. */
static void fixture_open(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	flat_guest_create(&fixture->guest, 16u << 20);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, TEXT, TEXT_GPA,
		       LARGE_PAGE, 0);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, MODULE, MODULE_GPA,
		       LARGE_PAGE, 0);
	memset(fixture->guest.memory + TEXT_GPA, 0x90, TEXT_SIZE);
	fixture->module =
		(struct guest_module){ .name = "module", .start = MODULE, .size = 0x1000 };
	fixture->kernel = (struct guest_kernel){ .text_start = TEXT,
						 .text_end = TEXT + TEXT_SIZE,
						 .paging = fixture->guest.registers.paging,
						 .symbols = symbols_new(),
						 .modules = &fixture->module };
	symbols_add(fixture->kernel.symbols, TEXT, TEXT_SIZE, 'T', "_text", NULL);
}

static void fixture_close(struct fixture *fixture)
{
	symbols_free(fixture->kernel.symbols);
	flat_guest_destroy(&fixture->guest);
}

/* Puts a function of SIZE bytes of CODE at ADDRESS. */
static void put(struct fixture *fixture, const char *name, uint64_t address, const uint8_t *code,
		size_t size)
{
	uint64_t gpa =
		address >= MODULE ? address - MODULE + MODULE_GPA : address - TEXT + TEXT_GPA;

	memcpy(fixture->guest.memory + gpa, code, size);
	symbols_add(fixture->kernel.symbols, address, size, 't', name,
		    address >= MODULE ? "module" : NULL);
}

#define PUT(fixture, name, address, ...)                                                           \
	do {                                                                                       \
		const uint8_t code[] = { __VA_ARGS__ };                                            \
		put(fixture, name, address, code, sizeof(code));                                   \
	} while (0)

static int find(struct fixture *fixture)
{
	symbols_finish(fixture->kernel.symbols);
	return rdpmc_sites_find(&fixture->sites, &fixture->guest.view, &fixture->kernel);
}

TEST(rdpmc_sites, bytes_of_other_instructions_are_not_matched)
{
	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	/* mov ecx, edi; rdpmc; shl rdx, 32; or rax, rdx; ret */
	PUT(&fixture, "native_read_pmc", TEXT + 0x100, 0x89, 0xf9, RDPMC, 0x48, 0xc1, 0xe2, 0x20,
	    0x48, 0x09, 0xd0, RET);
	/* mov eax, 0x330f; mov rax, 0x330f330f330f330f; jmp of that distance; lea rax, [rip + that]
	 */
	PUT(&fixture, "immediates", TEXT + 0x200, 0xb8, RDPMC, 0, 0, 0x48, 0xb8, RDPMC, RDPMC,
	    RDPMC, RDPMC, 0xe9, RDPMC, RDPMC, 0x48, 0x8d, 0x05, RDPMC, RDPMC, RET);
	/* Padding that ends in 0F, and a function that begins with 33: xor eax, eax */
	PUT(&fixture, "ends", TEXT + 0x300, RET, 0x0f);
	PUT(&fixture, "begins", TEXT + 0x302, 0x33, 0xc0, RET);
	/* int3, as after a return; rdpmc with an ignored prefix; and a second one */
	PUT(&fixture, "inlined", TEXT + 0x400, 0xcc, 0x66, RDPMC, RDPMC, RET);
	REQUIRE_EQUAL(find(&fixture), 0);
	REQUIRE_EQUAL(fixture.sites.count, 3);
	CHECK_EQUAL(fixture.sites.sites[0].address, TEXT + 0x102);
	CHECK_EQUAL(fixture.sites.sites[0].length, 2);
	CHECK_EQUAL(fixture.sites.sites[0].first, 0x0f);
	CHECK_EQUAL(fixture.sites.sites[1].address, TEXT + 0x401);
	CHECK_EQUAL(fixture.sites.sites[1].length, 3);
	CHECK_EQUAL(fixture.sites.sites[1].first, 0x66);
	CHECK_EQUAL(fixture.sites.sites[2].address, TEXT + 0x404);
}

TEST(rdpmc_sites, instruction_between_two_parts_of_the_search_and_the_last_one)
{
	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	PUT(&fixture, "border", TEXT + PART_BORDER - 1, 0x90, RDPMC, RET);
	PUT(&fixture, "next_border", TEXT + 2 * PART_BORDER, RDPMC, RET);
	PUT(&fixture, "last", TEXT + TEXT_SIZE - 2, RDPMC);
	REQUIRE_EQUAL(find(&fixture), 0);
	REQUIRE_EQUAL(fixture.sites.count, 3);
	CHECK_EQUAL(fixture.sites.sites[0].address, TEXT + PART_BORDER);
	CHECK_EQUAL(fixture.sites.sites[1].address, TEXT + 2 * PART_BORDER);
	CHECK_EQUAL(fixture.sites.sites[2].address, TEXT + TEXT_SIZE - 2);
}

TEST(rdpmc_sites, modules_are_searched_too)
{
	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	PUT(&fixture, "of_kernel", TEXT + 0x100, RDPMC, RET);
	PUT(&fixture, "of_module", MODULE + 0x10, 0x31, 0xc9, RDPMC, RET);
	fixture.kernel.module_count = 1;
	REQUIRE_EQUAL(find(&fixture), 0);
	REQUIRE_EQUAL(fixture.sites.count, 2);
	CHECK_EQUAL(fixture.sites.sites[1].address, MODULE + 0x12);
}

/* 06 is not an instruction in 64-bit mode: it is unclear whether RDPMC follows. */
TEST(rdpmc_sites, invalid_function_is_named)
{
	struct fixture fixture;

	fixture_open(&fixture);
	PUT(&fixture, "odd_function", TEXT + 0x100, 0x90, 0x06, RDPMC, RET);
	CHECK_EQUAL(find(&fixture), -ENOTSUP);
	CHECK(strstr(error_message(), "odd_function"));
	fixture_close(&fixture);

	/* Where no RDPMC can be, it does not matter. */
	fixture_open(&fixture);
	PUT(&fixture, "odd_function", TEXT + 0x100, RDPMC, 0x06, 0x06, 0x06, RET);
	CHECK_EQUAL(find(&fixture), 0);
	CHECK_EQUAL(fixture.sites.count, 1);
	fixture_close(&fixture);
}

TEST(rdpmc_sites, too_many_are_an_error)
{
	struct fixture fixture;
	uint8_t code[2 * (RDPMC_SITES_MAX + 1)];

	for (size_t i = 0; i < sizeof(code); i++)
		code[i] = i % 2 ? 0x33 : 0x0f;
	fixture_open(&fixture);
	put(&fixture, "many", TEXT + 0x100, code, sizeof(code));
	CHECK_EQUAL(find(&fixture), -E2BIG);
	fixture_close(&fixture);
}

/* Symbols of modules may have any size, and overlap: each of them would be read to its end. */
TEST(rdpmc_sites, functions_that_are_larger_than_a_kernel_are_an_error)
{
	const uint64_t size = 60u << 20;

	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	for (uint64_t at = LARGE_PAGE; at < size + LARGE_PAGE; at += LARGE_PAGE)
		flat_guest_map(&fixture.guest, fixture.guest.registers.paging.cr3, MODULE + at,
			       MODULE_GPA, LARGE_PAGE, 0);
	fixture.kernel.module_count = 1;
	for (uint64_t i = 0; i < 2; i++)
		PUT(&fixture, "function", MODULE + i * 0x10, RDPMC, RET);
	symbols_truncate(fixture.kernel.symbols, 1);
	for (uint64_t i = 0; i < 2; i++)
		symbols_add(fixture.kernel.symbols, MODULE + i * 0x10, size, 't', "large",
			    "module");
	CHECK_EQUAL(find(&fixture), 0);
	CHECK_EQUAL(fixture.sites.count, 2);
	symbols_reopen(fixture.kernel.symbols);
	PUT(&fixture, "function", MODULE + 0x20, RDPMC, RET);
	symbols_truncate(fixture.kernel.symbols, 3);
	symbols_add(fixture.kernel.symbols, MODULE + 0x20, size, 't', "large", "module");
	CHECK_EQUAL(find(&fixture), -EFBIG);
}

TEST(rdpmc_sites, unreadable_text_is_an_error)
{
	FIXTURE(struct fixture, fixture, fixture_open, fixture_close);
	fixture.kernel.text_end = TEXT + 2 * LARGE_PAGE;
	CHECK_EQUAL(find(&fixture), -EFAULT);
	CHECK(strlen(error_message()) > 0);
}
