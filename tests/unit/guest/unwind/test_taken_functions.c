/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions of a made kernel can be called indirectly. */
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/taken_functions.h"

#define TEXT      0xffffffff81000000ull
#define TEXT_GPA  0x10000ull
#define TEXT_SIZE 0x2000ull
#define DATA      (TEXT + TEXT_SIZE)
#define DATA_GPA  (TEXT_GPA + TEXT_SIZE)
#define END       (DATA + 0x1000)
#define F(number) (TEXT + (number)*32ull)

enum {
	CALLED,
	IN_TABLE,
	BY_LEA,
	BY_MOVE,
	JUMPED_TO,
	JUMPED_TO_BY_TAKEN,
	IN_PV_OPS,
	UNREFERRED,
	COUNT
};

struct kernel {
	struct flat_guest guest;
	struct symbols *symbols;
	struct taken_functions *taken;
};

/* CODE ends with an offset to TARGET. */
static void put(struct kernel *kernel, uint64_t at, const char *code, size_t size, uint64_t target)
{
	uint8_t *to = kernel->guest.memory + TEXT_GPA + (at - TEXT);
	int32_t offset = (int32_t)(target - (at + size + 4));

	memcpy(to, code, size);
	memcpy(to + size, &offset, sizeof(offset));
}

static void make_code(struct kernel *kernel)
{
	int32_t address = (int32_t)F(BY_MOVE);

	put(kernel, F(CALLED), "\xe9", 1, F(JUMPED_TO));
	put(kernel, F(JUMPED_TO), "\xe8", 1, F(CALLED));
	put(kernel, F(IN_TABLE), "\x0f\x85", 2, F(JUMPED_TO_BY_TAKEN));
	put(kernel, F(IN_TABLE) + 8, "\x48\x8d\x3d", 3, F(BY_LEA));
	memcpy(kernel->guest.memory + TEXT_GPA + (F(IN_TABLE) - TEXT) + 16, "\x48\xc7\xc7", 3);
	memcpy(kernel->guest.memory + TEXT_GPA + (F(IN_TABLE) - TEXT) + 19, &address, 4);
	put(kernel, F(IN_PV_OPS) + 8, "\xe8", 1, F(IN_PV_OPS));
	flat_guest_write_u64(&kernel->guest, DATA_GPA + 0x40, F(IN_TABLE));
	flat_guest_write_u64(&kernel->guest, DATA_GPA + 0x80, F(IN_PV_OPS));
}

static void make(struct kernel *kernel)
{
	static const struct {
		const char *name;
		uint64_t address;
	} others[] = { { "_text", TEXT },
		       { "_etext", DATA },
		       { "pv_ops", DATA + 0x80 },
		       { "after", DATA + 0x90 },
		       { "_end", END } };

	*kernel = (struct kernel){ .symbols = symbols_new() };
	flat_guest_create(&kernel->guest, 0x40000);
	for (uint64_t at = 0; at < END - TEXT; at += 4096)
		flat_guest_map(&kernel->guest, kernel->guest.registers.paging.cr3, TEXT + at,
			       TEXT_GPA + at, 4096, 0);
	for (unsigned int i = 0; i < COUNT; i++)
		symbols_add(kernel->symbols, F(i), 32, 't', "function", NULL);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		symbols_add(kernel->symbols, others[i].address, 0, 'D', others[i].name, NULL);
	symbols_finish(kernel->symbols);
	make_code(kernel);
	kernel->taken = taken_functions_new(kernel->symbols, &kernel->guest.view,
					    &kernel->guest.registers.paging);
}

static void destroy(struct kernel *kernel)
{
	taken_functions_free(kernel->taken);
	symbols_free(kernel->symbols);
	flat_guest_destroy(&kernel->guest);
}

TEST(taken_functions, those_with_an_address_somewhere_are_taken)
{
	FIXTURE(struct kernel, kernel, make, destroy);
	REQUIRE(kernel.taken);
	CHECK(taken_functions_has(kernel.taken, F(IN_TABLE)));
	CHECK(taken_functions_has(kernel.taken, F(BY_LEA)));
	CHECK(taken_functions_has(kernel.taken, F(BY_MOVE)));
	CHECK(taken_functions_has(kernel.taken, F(JUMPED_TO_BY_TAKEN)));
	CHECK(taken_functions_has(kernel.taken, F(UNREFERRED)));
}

TEST(taken_functions, others_are_only_called_directly)
{
	FIXTURE(struct kernel, kernel, make, destroy);
	REQUIRE(kernel.taken);
	CHECK(!taken_functions_has(kernel.taken, F(CALLED)));
	CHECK(!taken_functions_has(kernel.taken, F(JUMPED_TO)));
	CHECK(!taken_functions_has(kernel.taken, F(IN_PV_OPS)));
	CHECK(taken_functions_has_callers(kernel.taken, F(CALLED)));
	CHECK(!taken_functions_has_callers(kernel.taken, F(IN_TABLE)));
}

TEST(taken_functions, without_a_readable_kernel_every_function_is_taken)
{
	FIXTURE(struct kernel, kernel, make, destroy);
	flat_guest_unmap_all(&kernel.guest);
	CHECK(!taken_functions_new(kernel.symbols, &kernel.guest.view,
				   &kernel.guest.registers.paging));
	CHECK(taken_functions_has(NULL, F(CALLED)));
	CHECK(!taken_functions_has_callers(NULL, F(CALLED)));
}
