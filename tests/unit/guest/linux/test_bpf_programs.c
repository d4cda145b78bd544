/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/bpf_programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/sample_record.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_presence.h"

#define MEMORY 0xffffffffc0100000ull /* maps to GPA 0 */
#define HEAD   MEMORY
#define SYMBOL 256u /* bytes from one to the next */
#define CODE   0xffffffffc0200000ull
#define KERNEL 0xffffffff81000000ull

static const struct bpf_program_layout layout = {
	.head = HEAD, .range = 8, .name = 32, .name_size = 160, .list = 208
};

/* Programs 1 to COUNT of a list, each of 0x800 bytes, called "bpf_prog_N". */
struct setting {
	struct flat_guest guest;
	struct guest_module *programs;
	size_t count;
};

static void put(struct setting *setting, uint64_t gva, uint64_t value)
{
	memcpy(setting->guest.memory + (gva - MEMORY), &value, sizeof(value));
}

static uint64_t symbol(unsigned int number)
{
	return MEMORY + (uint64_t)number * SYMBOL;
}

static uint64_t node(unsigned int number)
{
	return number ? symbol(number) + layout.list : HEAD;
}

static void join(struct setting *setting, unsigned int before, unsigned int after)
{
	put(setting, node(before), node(after));
	put(setting, node(after) + 8, node(before));
}

static uint64_t code(unsigned int number)
{
	return CODE + 0x1000ull * number;
}

static void set_name(struct setting *setting, unsigned int number, const char *name)
{
	strcpy((char *)setting->guest.memory + (symbol(number) + layout.name - MEMORY), name);
}

static void make(struct setting *setting, unsigned int count)
{
	*setting = (struct setting){ 0 };
	flat_guest_create(&setting->guest, 1 << 20);
	flat_guest_map(&setting->guest, setting->guest.registers.paging.cr3, MEMORY, 0, 4096, 0);
	for (unsigned int i = 1; i <= count; i++) {
		char name[32];

		put(setting, symbol(i) + layout.range, code(i));
		put(setting, symbol(i) + layout.range + 8, code(i) + 0x800);
		snprintf(name, sizeof(name), "bpf_prog_%u", i);
		set_name(setting, i, name);
		join(setting, i - 1, i);
	}
	join(setting, count, 0);
}

static void leave(struct setting *setting)
{
	free(setting->programs);
	flat_guest_destroy(&setting->guest);
}

static void read_programs(struct setting *setting)
{
	free(setting->programs);
	setting->programs = NULL;
	setting->count = 0;
	CHECK_EQUAL(bpf_programs_read(&setting->programs, &setting->count, &setting->guest.view,
				      &setting->guest.registers.paging, &layout),
		    0);
}

static bool is_there(const struct setting *setting, const struct guest_module *program)
{
	return bpf_program_is_loaded(program, &setting->guest.view,
				     &setting->guest.registers.paging);
}

/* As the kernel does: list_del_rcu(). */
static void take_out(struct setting *setting, unsigned int before, unsigned int number,
		     unsigned int after)
{
	join(setting, before, after);
	put(setting, node(number) + 8, 0xdead000000000122);
}

TEST(bpf_programs, are_read_from_the_list)
{
	struct setting setting;

	make(&setting, 3);
	read_programs(&setting);
	REQUIRE_EQUAL(setting.count, 3);
	CHECK_STRING(setting.programs[1].name, "bpf_prog_2");
	CHECK_EQUAL(setting.programs[1].start, code(2));
	CHECK_EQUAL(setting.programs[1].size, 0x800);
	leave(&setting);

	make(&setting, 0);
	read_programs(&setting);
	CHECK_EQUAL(setting.count, 0);
	leave(&setting);
}

TEST(bpf_programs, are_appended_to_the_list)
{
	FIXTURE(struct setting, setting, make, leave, 1);
	setting.programs = calloc(1, sizeof(*setting.programs));
	setting.count = 1;
	REQUIRE(setting.programs);
	CHECK_EQUAL(bpf_programs_read(&setting.programs, &setting.count, &setting.guest.view,
				      &setting.guest.registers.paging, &layout),
		    0);
	REQUIRE_EQUAL(setting.count, 2);
	CHECK_STRING(setting.programs[0].name, "");
	CHECK_STRING(setting.programs[1].name, "bpf_prog_1");
}

TEST(bpf_programs, invalid_ones_are_left_out)
{
	FIXTURE(struct setting, setting, make, leave, 5);
	set_name(&setting, 1, "bpf prog");
	set_name(&setting, 2, "");
	put(&setting, symbol(3) + layout.range, 0x401000);
	put(&setting, symbol(4) + layout.range + 8, code(4));
	read_programs(&setting);
	REQUIRE_EQUAL(setting.count, 1);
	CHECK_STRING(setting.programs[0].name, "bpf_prog_5");

	/* Its name has no room. */
	memset(setting.guest.memory + (symbol(5) + layout.name - MEMORY), 'x',
	       GUEST_MODULE_NAME_MAX);
	read_programs(&setting);
	CHECK_EQUAL(setting.count, 0);
}

TEST(bpf_programs, are_in_order_and_none_overlaps_another)
{
	FIXTURE(struct setting, setting, make, leave, 5);
	put(&setting, symbol(1) + layout.range, code(6));
	put(&setting, symbol(1) + layout.range + 8, code(6) + 0x800);
	/* One that covers two others, which are adjacent. */
	put(&setting, symbol(3) + layout.range + 8, code(5) + 1);
	read_programs(&setting);
	REQUIRE_EQUAL(setting.count, 2);
	CHECK_STRING(setting.programs[0].name, "bpf_prog_2");
	CHECK_STRING(setting.programs[1].name, "bpf_prog_1");
	/* Adjacent ones. */
	put(&setting, symbol(3) + layout.range + 8, code(4));
	read_programs(&setting);
	CHECK_EQUAL(setting.count, 5);
}

TEST(bpf_programs, broken_list_has_none)
{
	FIXTURE(struct setting, setting, make, leave, 3);
	put(&setting, node(2), 0xdead000000000100);
	read_programs(&setting);
	CHECK_EQUAL(setting.count, 0);
}

TEST(bpf_programs, circular_list_is_bounded)
{
	FIXTURE(struct setting, setting, make, leave, 2);
	join(&setting, 2, 1);
	put(&setting, node(1) + 8, node(2));
	read_programs(&setting);
	CHECK(setting.count <= BPF_PROGRAMS_MAX);
}

TEST(bpf_programs, are_loaded_until_they_are_unlinked)
{
	FIXTURE(struct setting, setting, make, leave, 3);
	read_programs(&setting);
	REQUIRE_EQUAL(setting.count, 3);
	take_out(&setting, 0, 1, 2);
	CHECK(!is_there(&setting, &setting.programs[0]));
	CHECK(is_there(&setting, &setting.programs[1]));
	CHECK(is_there(&setting, &setting.programs[2]));
	/* All its memory is now used by another program of the same size. */
	set_name(&setting, 3, "bpf_prog_4");
	CHECK(!is_there(&setting, &setting.programs[2]));
	set_name(&setting, 3, "bpf_prog_3");
	CHECK(is_there(&setting, &setting.programs[2]));
	/* At another address. */
	put(&setting, symbol(2) + layout.range, code(5));
	CHECK(!is_there(&setting, &setting.programs[1]));
	take_out(&setting, 2, 3, 0);
	CHECK(!is_there(&setting, &setting.programs[2]));
}

/* Whether a sample in code of KERNEL's program NUMBER is assigned to a program with certainty. */
static bool is_sure(const struct setting *setting, struct module_presence *presence,
		    unsigned int number)
{
	uint64_t addresses[] = { code(number) + 4, KERNEL };
	struct guest_callchain chain = { .addresses = addresses, .capacity = 2, .kernel_depth = 2 };

	module_presence_check(presence, &setting->guest.view, &setting->guest.registers.paging, 100,
			      &chain);
	/* Then its callers are known too, as code of programs keeps frame pointers. */
	CHECK_EQUAL(chain.kernel_depth, chain.flags & SAMPLE_UNCERTAIN ? 1 : 2);
	return !(chain.flags & SAMPLE_UNCERTAIN);
}

TEST(bpf_programs, are_checked_by_each_sample)
{
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000 };
	struct module_presence *presence;

	FIXTURE(struct setting, setting, make, leave, 2);
	read_programs(&setting);
	REQUIRE_EQUAL(
		module_presence_create(&presence, &tables, setting.programs, setting.count, NULL),
		0);
	CHECK(is_sure(&setting, presence, 1));
	CHECK(is_sure(&setting, presence, 2));
	take_out(&setting, 0, 1, 2);
	CHECK(!is_sure(&setting, presence, 1));
	CHECK(is_sure(&setting, presence, 2));
	module_presence_free(presence);
}
