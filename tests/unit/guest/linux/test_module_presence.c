/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/module_presence.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/sample_record.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/guest_kernel.h"

#define PAGE            0xffffffffc0100000ull /* maps to GPA 0 */
#define FIRST           0xffffffffc0200000ull
#define SECOND          0xffffffffc0202000ull
#define NAMELESS        0xffffffffc0204000ull
#define KERNEL          0xffffffff81000000ull
#define JIT             0xffffffffc0300000ull
#define UNSURE(address) ((address) & ~SAMPLE_ADDRESS_CERTAIN)

/* Two modules, whose build IDs consist of the bytes 1 and 2, and one without a build ID. */
struct setting {
	struct flat_guest guest;
	struct module_presence *presence;
	uint64_t addresses[4];
	uint64_t deadline; /* of the chain */
	struct guest_callchain chain;
};

static void create(struct setting *setting, struct guest_module *modules, size_t count)
{
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000,
						 .modules = modules,
						 .module_count = count };

	REQUIRE_EQUAL(module_presence_create(&setting->presence, &tables, modules, count, NULL), 0);
}

static void make(struct setting *setting)
{
	struct guest_module modules[] = {
		{ .start = SECOND, .size = 0x1000, .build_id_size = 20, .build_id_gva = PAGE + 64 },
		{ .start = FIRST, .size = 0x1000, .build_id_size = 20, .build_id_gva = PAGE + 32 },
		{ .start = NAMELESS, .size = 0x1000 },
	};

	memset(modules[0].build_id, 2, 20);
	memset(modules[1].build_id, 1, 20);
	flat_guest_create(&setting->guest, 1 << 20);
	flat_guest_map(&setting->guest, setting->guest.registers.paging.cr3, PAGE, 0, 4096, 0);
	memset(setting->guest.memory + 32, 1, 20);
	memset(setting->guest.memory + 64, 2, 20);
	setting->deadline = 0;
	create(setting, modules, 3);
}

static void leave(struct setting *setting)
{
	module_presence_free(setting->presence);
	flat_guest_destroy(&setting->guest);
}

/* A chain of the kernel addresses A, B and C, and one user address. */
static void check(struct setting *setting, uint64_t time, uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t addresses[] = { a, b, c, 0x401000 };

	memcpy(setting->addresses, addresses, sizeof(addresses));
	setting->chain = (struct guest_callchain){ .addresses = setting->addresses,
						   .capacity = 4,
						   .kernel_depth = 3,
						   .user_depth = 1,
						   .deadline = setting->deadline };
	module_presence_check(setting->presence, &setting->guest.view,
			      &setting->guest.registers.paging, time, &setting->chain);
}

struct wanted {
	uint64_t start, time;
};

static void take_time(void *context, const struct guest_module *module, uint64_t time)
{
	struct wanted *wanted = context;

	if (module->start == wanted->start)
		wanted->time = time;
}

/* 0: never. */
static uint64_t seen(const struct setting *setting, uint64_t start)
{
	struct wanted wanted = { .start = start };

	module_presence_for_each_seen(setting->presence, take_time, &wanted);
	return wanted.time;
}

TEST(module_presence, is_recorded_for_the_modules_of_a_sample)
{
	FIXTURE(struct setting, setting, make, leave);
	CHECK_EQUAL(seen(&setting, FIRST), 0);
	check(&setting, 100, FIRST, FIRST + 0xfff, KERNEL);
	check(&setting, 90, FIRST, NAMELESS, KERNEL);
	CHECK_EQUAL(seen(&setting, FIRST), 100);
	CHECK_EQUAL(seen(&setting, SECOND), 0);
	CHECK_EQUAL(setting.addresses[1], NAMELESS);
	check(&setting, 110, KERNEL, SECOND, FIRST);
	CHECK_EQUAL(seen(&setting, FIRST), 110);
	CHECK_EQUAL(seen(&setting, SECOND), 110);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
	CHECK_EQUAL(setting.chain.user_depth, 1);
	CHECK_EQUAL(setting.chain.flags, 0);
}

TEST(module_presence, chain_ends_before_the_next_module_after_the_deadline)
{
	FIXTURE(struct setting, setting, make, leave);
	setting.deadline = 1;
	check(&setting, 100, FIRST, FIRST + 0xfff, SECOND);
	CHECK_EQUAL(setting.chain.kernel_depth, 2);
	CHECK_EQUAL(setting.chain.user_depth, 0);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	CHECK_EQUAL(seen(&setting, FIRST), 100);
	CHECK_EQUAL(seen(&setting, SECOND), 0);
	check(&setting, 110, KERNEL, KERNEL + 1, KERNEL + 2);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
	CHECK_EQUAL(setting.chain.flags, 0);
	setting.deadline = UINT64_MAX;
	check(&setting, 120, FIRST, FIRST + 0xfff, SECOND);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
}

TEST(module_presence, chain_ends_in_a_module_that_replaced_another)
{
	FIXTURE(struct setting, setting, make, leave);
	setting.guest.memory[64 + 19] = 3; /* another module at its address */
	check(&setting, 100, FIRST, SECOND, KERNEL);
	CHECK_EQUAL(seen(&setting, FIRST), 100);
	CHECK_EQUAL(seen(&setting, SECOND), 0);
	CHECK_EQUAL(setting.chain.kernel_depth, 2);
	CHECK_EQUAL(setting.chain.user_depth, 0);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	CHECK_EQUAL(setting.addresses[0], FIRST);
	CHECK_EQUAL(setting.addresses[1], UNSURE(SECOND));
}

TEST(module_presence, code_in_no_known_module_is_uncertain)
{
	FIXTURE(struct setting, setting, make, leave);
	check(&setting, 100, JIT, KERNEL + 0xfff, KERNEL + 0x1000);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
	CHECK_EQUAL(setting.chain.user_depth, 1);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_UNCERTAIN);
	CHECK_EQUAL(setting.addresses[0], UNSURE(JIT));
	CHECK_EQUAL(setting.addresses[1], KERNEL + 0xfff);
	CHECK_EQUAL(setting.addresses[2], UNSURE(KERNEL + 0x1000));
	CHECK_EQUAL(setting.addresses[3], 0x401000);
}

/* The unwinder still has the tables of the previous modules. */
TEST(module_presence, chain_ends_in_a_module_without_a_table)
{
	struct guest_module known[] = { { .start = FIRST, .size = 0x1000, .build_id_size = 20 } };
	struct guest_module now[] = {
		{ .start = FIRST, .size = 0x1000, .build_id_size = 20, .build_id_gva = PAGE + 64 },
		{ .start = SECOND, .size = 0x1000, .build_id_size = 20, .build_id_gva = PAGE + 64 },
	};
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000,
						 .modules = known,
						 .module_count = 1 };

	FIXTURE(struct setting, setting, make, leave);
	memset(now[0].build_id, 2, 20);
	memset(now[1].build_id, 2, 20);
	check(&setting, 90, FIRST, KERNEL, KERNEL);
	REQUIRE_EQUAL(module_presence_create(&setting.presence, &tables, now, 2, setting.presence),
		      0);
	check(&setting, 99, KERNEL, SECOND, KERNEL); /* never seen before */
	CHECK_EQUAL(setting.chain.kernel_depth, 2);
	CHECK_EQUAL(setting.addresses[1], SECOND);
	check(&setting, 100, SECOND, KERNEL, KERNEL);
	CHECK_EQUAL(setting.chain.kernel_depth, 1);
	check(&setting, 100, KERNEL, FIRST, KERNEL);
	CHECK_EQUAL(setting.chain.kernel_depth, 2);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	CHECK_EQUAL(setting.addresses[1], FIRST);
	CHECK_EQUAL(seen(&setting, SECOND), 100);
	CHECK_EQUAL(seen(&setting, FIRST), 90); /* by the older one, which comes last */
}

TEST(module_presence, number_of_older_checks_is_bounded)
{
	struct guest_module module = { .start = FIRST, .size = 0x1000 };
	struct guest_kernel kernel = { .text_start = KERNEL, .text_end = KERNEL + 0x1000 };

	kernel.symbols = symbols_new();
	symbols_finish(kernel.symbols);
	for (unsigned int i = 0; i <= MODULE_PRESENCE_OLDER_MAX; i++) {
		module.size += 0x1000;
		CHECK_EQUAL(guest_kernel_update_presence(&kernel, &module, 1), 0);
		CHECK_EQUAL(guest_kernel_update_presence(&kernel, &module, 1), 0);
		CHECK(module_presence_matches(guest_kernel_presence(&kernel), &module, 1));
	}
	CHECK_EQUAL(guest_kernel_update_presence(&kernel, &module, 1), 0);
	module.start = SECOND;
	CHECK_EQUAL(guest_kernel_update_presence(&kernel, &module, 1), -E2BIG);
	CHECK(!module_presence_matches(guest_kernel_presence(&kernel), &module, 1));
	module_presence_free(kernel.presence);
	symbols_free(kernel.symbols);
}

static void count_seen(void *context, const struct guest_module *module, uint64_t time)
{
	*(uint64_t *)context += time;
}

TEST(module_presence, reclaim_reports_what_was_seen)
{
	struct guest_kernel kernel = { .text_start = KERNEL, .text_end = KERNEL + 0x1000 };
	uint64_t seen_times = 0;

	FIXTURE(struct setting, setting, make, leave);
	kernel.symbols = symbols_new();
	symbols_finish(kernel.symbols);
	kernel.presence = setting.presence;
	check(&setting, 7, FIRST, KERNEL, KERNEL);
	for (unsigned int i = 1; i < 4 * MODULE_PRESENCE_OLDER_MAX; i++) {
		struct guest_module module = { .start = SECOND, .size = 0x1000 + i };

		REQUIRE_EQUAL(guest_kernel_update_presence(&kernel, &module, 1), 0);
		setting.presence = guest_kernel_presence(&kernel);
		CHECK_EQUAL(seen(&setting, FIRST), i == 1 ? 7 : 0);
		module_presence_reclaim(setting.presence, count_seen, &seen_times);
	}
	CHECK_EQUAL(seen_times, 7);
	module_presence_reclaim(NULL, count_seen, &seen_times);
	symbols_free(kernel.symbols);
}

TEST(module_presence, unmapped_module_is_not_present)
{
	struct guest_module module = {
		.start = FIRST, .size = 0x1000, .build_id_size = 20, .build_id_gva = PAGE + 0x5000
	};

	FIXTURE(struct setting, setting, make, leave);
	module_presence_free(setting.presence);
	create(&setting, &module, 1);
	check(&setting, 100, FIRST, KERNEL, KERNEL);
	CHECK_EQUAL(seen(&setting, FIRST), 0);
	CHECK_EQUAL(setting.chain.kernel_depth, 1);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_UNCERTAIN | SAMPLE_KERNEL_TRUNCATED);
}

/* Other code runs at the address of an unloaded module, whose table is still in use. */
TEST(module_presence, chain_ends_where_the_table_of_an_unloaded_module_was_used)
{
	struct guest_module known[] = { { .start = FIRST, .size = 0x1000, .build_id_size = 20 } };
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000,
						 .modules = known,
						 .module_count = 1 };

	FIXTURE(struct setting, setting, make, leave);
	REQUIRE_EQUAL(module_presence_create(&setting.presence, &tables, NULL, 0, setting.presence),
		      0);
	check(&setting, 100, KERNEL, FIRST, KERNEL);
	CHECK_EQUAL(setting.chain.kernel_depth, 2);
	CHECK_EQUAL(setting.chain.flags, SAMPLE_KERNEL_TRUNCATED);
	CHECK_EQUAL(setting.addresses[1], UNSURE(FIRST));
	check(&setting, 100, KERNEL, JIT, KERNEL);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
}

TEST(module_presence, is_not_proven_by_a_sample_in_a_module_without_a_build_id)
{
	FIXTURE(struct setting, setting, make, leave);
	check(&setting, 100, NAMELESS, KERNEL, KERNEL);
	CHECK_EQUAL(setting.addresses[0], NAMELESS);
	CHECK_EQUAL(setting.chain.kernel_depth, 3);
	CHECK_EQUAL(seen(&setting, NAMELESS), 0);
}

#define MANY 8191 /* a prime */

static struct guest_module nth_module(unsigned int number)
{
	struct guest_module module = { .start = FIRST + 0x2000ull * number, .size = 0x1000 };

	snprintf(module.name, sizeof(module.name), "module_%u", number);
	return module;
}

/* Whether a chain is complete whose second address is in that module, or where it was. */
static bool is_whole_in(struct setting *setting, unsigned int number)
{
	check(setting, 100, KERNEL, nth_module(number).start + 8, KERNEL);
	return setting->chain.kernel_depth == 3;
}

/* One module is unloaded, one loaded and one stays, in lists with different orders. */
TEST(module_presence, many_modules_are_distinguished)
{
	struct guest_module *known = calloc(MANY, sizeof(*known)),
			    *now = calloc(MANY, sizeof(*now));
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000,
						 .modules = known };
	size_t count = 0;

	FIXTURE(struct setting, setting, make, leave);
	for (unsigned int i = 0; i < MANY; i++) {
		unsigned int number = (i * 4099u) % MANY;

		if (number % 3 != 1)
			known[tables.module_count++] = nth_module(number);
		if (number % 3 != 0)
			now[count++] = nth_module(MANY - 1 - number);
	}
	REQUIRE_EQUAL(
		module_presence_create(&setting.presence, &tables, now, count, setting.presence),
		0);
	CHECK(module_presence_matches(setting.presence, now, count));
	for (unsigned int i = 0; i < MANY; i++)
		if (is_whole_in(&setting, i) != (i % 3 == 2)) {
			FAIL_TEST("module %u of a kind %u", i, i % 3);
			break;
		}
	free(known);
	free(now);
}
