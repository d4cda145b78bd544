/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a kernel whose per-CPU symbols are offsets (to 6.14), and of one where they are
 * addresses in the image.
 */
#include <errno.h>

#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/cli/run_watch_address.h"
#include "vmm/guest/linux/per_cpu.h"

#define IMAGE    0xffffffff81000000ull
#define OFFSETS  (IMAGE + 0x100)
#define PER_CPU  (IMAGE + 0x80000) /* of a newer kernel */
#define LOAD     (IMAGE + 0x90000) /* of an older one */
#define MODULE   0xffffffffc0000000ull
#define OWN(cpu) (0xffff888000100000ull + (cpu)*0x40000)

struct fixture {
	struct flat_guest guest;
	struct guest_kernel kernel;
};

static void add(struct symbols *symbols, const char *name, uint64_t address)
{
	CHECK_EQUAL(symbols_add(symbols, address, 0, 'D', name, NULL), 0);
}

static void add_of_module(struct symbols *symbols, const char *name, uint64_t address)
{
	CHECK_EQUAL(symbols_add(symbols, address, 0, 'd', name, "module"), 0);
}

static void set_offset(struct fixture *fixture, unsigned int cpu, uint64_t offset)
{
	flat_guest_write_u64(&fixture->guest, 0x100 + cpu * 8, offset);
}

static void start(struct fixture *fixture)
{
	*fixture = (struct fixture){ .kernel = { .symbols = symbols_new(),
						 .per_cpu = symbols_new() } };
	flat_guest_create(&fixture->guest, 8u << 20);
	flat_guest_map(&fixture->guest, fixture->guest.registers.paging.cr3, IMAGE, 0, 2u << 20, 0);
	fixture->kernel.paging = fixture->guest.registers.paging;
	add(fixture->kernel.symbols, "__per_cpu_offset", OFFSETS);
	add(fixture->kernel.symbols, "jiffies_64", IMAGE + 0x40);
}

static void start_older(struct fixture *fixture)
{
	start(fixture);
	add(fixture->kernel.symbols, "__per_cpu_load", LOAD);
	add(fixture->kernel.per_cpu, "__per_cpu_start", 0);
	add(fixture->kernel.per_cpu, "counter", 0x1230);
	add(fixture->kernel.per_cpu, "__per_cpu_end", 0x3000);
	add(fixture->kernel.per_cpu, "a_number", 0x7000);
	symbols_finish(fixture->kernel.symbols);
	symbols_finish(fixture->kernel.per_cpu);
}

static void finish(struct fixture *fixture)
{
	symbols_free(fixture->kernel.symbols);
	symbols_free(fixture->kernel.per_cpu);
	flat_guest_destroy(&fixture->guest);
}

static bool offset_of(const struct fixture *fixture, unsigned int cpu, uint64_t *offset)
{
	return guest_per_cpu_offset(&fixture->kernel, &fixture->guest.view,
				    &fixture->guest.registers, cpu, offset);
}

TEST(per_cpu, variables_that_are_offsets)
{
	struct guest_variable variable;

	FIXTURE(struct fixture, fixture, start_older, finish);
	CHECK(guest_variable_find(&fixture.kernel, "counter", &variable));
	CHECK(variable.per_cpu);
	CHECK_EQUAL(variable.address, 0x1230);
	CHECK(guest_variable_find(&fixture.kernel, "jiffies_64", &variable));
	CHECK(!variable.per_cpu);
	CHECK_EQUAL(variable.address, IMAGE + 0x40);
	CHECK(!guest_variable_find(&fixture.kernel, "a_number", &variable));
	CHECK(!guest_variable_find(&fixture.kernel, "no_symbol", &variable));
}

TEST(per_cpu, variables_in_the_image)
{
	struct guest_variable variable;
	uint64_t offset;

	FIXTURE(struct fixture, fixture, start, finish);
	add(fixture.kernel.symbols, "__per_cpu_start", PER_CPU);
	add(fixture.kernel.symbols, "counter", PER_CPU + 0x1230);
	add(fixture.kernel.symbols, "__per_cpu_end", PER_CPU + 0x3000);
	symbols_finish(fixture.kernel.symbols);
	symbols_finish(fixture.kernel.per_cpu);
	CHECK(guest_variable_find(&fixture.kernel, "counter", &variable));
	CHECK(variable.per_cpu);
	CHECK_EQUAL(variable.address, PER_CPU + 0x1230);
	CHECK(guest_variable_find(&fixture.kernel, "__per_cpu_end", &variable));
	CHECK(!variable.per_cpu);
	/* Before its CPUs have memory of their own they all use the image's. */
	CHECK(!offset_of(&fixture, 1, &offset));
	set_offset(&fixture, 1, OWN(1) - PER_CPU);
	CHECK(offset_of(&fixture, 1, &offset));
	CHECK_EQUAL(offset, OWN(1) - PER_CPU);
}

TEST(per_cpu, variables_of_modules)
{
	struct guest_variable variable;

	FIXTURE(struct fixture, fixture, start, finish);
	add(fixture.kernel.symbols, "__per_cpu_start", PER_CPU);
	add(fixture.kernel.symbols, "__per_cpu_end", PER_CPU + 0x3000);
	add_of_module(fixture.kernel.symbols, "function", MODULE);
	add_of_module(fixture.kernel.symbols, "jiffies_64", MODULE + 8);
	add_of_module(fixture.kernel.per_cpu, "counter", PER_CPU + 0x4000);
	symbols_finish(fixture.kernel.symbols);
	symbols_finish(fixture.kernel.per_cpu);
	CHECK(guest_variable_find(&fixture.kernel, "counter", &variable));
	CHECK(variable.per_cpu && variable.module);
	CHECK_EQUAL(variable.address, PER_CPU + 0x4000);
	CHECK(guest_variable_find(&fixture.kernel, "function", &variable));
	CHECK(!variable.per_cpu && variable.module);
	CHECK_EQUAL(variable.address, MODULE);
	/* The kernel's own comes first. */
	CHECK(guest_variable_find(&fixture.kernel, "jiffies_64", &variable));
	CHECK(!variable.module);
}

TEST(per_cpu, watch_waits_for_the_memory_of_a_cpu)
{
	uint64_t offset;

	FIXTURE(struct fixture, fixture, start_older, finish);
	for (unsigned int cpu = 0; cpu < 2; cpu++)
		set_offset(&fixture, cpu, LOAD);
	CHECK(!offset_of(&fixture, 0, &offset));
	set_offset(&fixture, 0, OWN(0));
	CHECK(offset_of(&fixture, 0, &offset));
	CHECK_EQUAL(offset, OWN(0));
	CHECK(!offset_of(&fixture, 1, &offset));
	/* After the mapped memory. */
	CHECK(!offset_of(&fixture, 0x100000, &offset));
}

static int find_place(const struct fixture *fixture, const char *text,
		      struct run_watch_address *place)
{
	const struct run_watch_guest guest = { .kernel = &fixture->kernel,
					       .view = &fixture->guest.view,
					       .vcpus = 3 };
	struct watch_spec spec;

	CHECK_EQUAL(watch_spec_parse(&spec, text), 0);
	return run_watch_locate(&guest, &spec, place);
}

TEST(per_cpu, watch_uses_the_copy_of_each_vcpu)
{
	struct run_watch_address place;

	FIXTURE(struct fixture, fixture, start_older, finish);
	for (unsigned int cpu = 0; cpu < 3; cpu++)
		set_offset(&fixture, cpu, LOAD);
	CHECK_EQUAL(find_place(&fixture, "counter+8:8:w", &place), 0);
	set_offset(&fixture, 1, OWN(1));
	CHECK_EQUAL(find_place(&fixture, "counter+8:8:w", &place), 1);
	CHECK(!place.complete);
	CHECK_EQUAL(place.address, OWN(1) + 0x1238);
	set_offset(&fixture, 0, OWN(0));
	set_offset(&fixture, 2, OWN(2));
	CHECK_EQUAL(find_place(&fixture, "counter+8:8:w", &place), 1);
	CHECK(place.per_cpu && place.complete);
	CHECK_EQUAL(place.address, OWN(0) + 0x1238);
	for (unsigned int cpu = 0; cpu < 3; cpu++)
		CHECK_EQUAL(place.on[cpu], OWN(cpu) + 0x1238);
	CHECK_EQUAL(find_place(&fixture, "counter:4:w@2", &place), 1);
	CHECK_EQUAL(place.address, OWN(2) + 0x1230);
	CHECK_EQUAL(place.on[0] | place.on[1], 0);
	CHECK_EQUAL(find_place(&fixture, "counter+4:8:w", &place), -EINVAL);
	CHECK_EQUAL(find_place(&fixture, "no_symbol:8:w", &place), -ENOENT);
	CHECK_EQUAL(find_place(&fixture, "jiffies_64:8:w", &place), 1);
	CHECK(!place.per_cpu && place.complete);
	CHECK_EQUAL(place.address, IMAGE + 0x40);
}
