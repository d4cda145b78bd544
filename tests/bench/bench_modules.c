/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of tracking the guest's modules: reading a list of 100 modules, which the collector does
 * 20 times per second, and the check of a sample with module code in its callchain of 16, compared
 * with one without.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/unit/flat_guest.c"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/module_presence.h"

#define MODULES    100
#define GUEST_SIZE (4u << 20)
#define BASE       0xffffffffc0400000ull /* maps to GPA 0 */
#define KERNEL     0xffffffff81000000ull
#define EACH       0x4000ull /* bytes: the text, followed by the kernel's data about the module */
#define HEAD       (BASE + MODULES * EACH)
#define DEPTH      16
#define RUNS_MAX   9
#define RUNS       bench_size(RUNS_MAX, 1)
#define READS      bench_size(200, 10)
#define CHECKS     bench_size(200000, 2000)

static const struct module_layout layout = {
	.list = 8,
	.name = 24,
	.name_size = 56,
	.text_base = 128,
	.text_size = 136,
	.has_notes = true,
	.notes_attrs = 392,
	.notes = 8,
	.attrs = 16,
	.attr_size = 16,
	.attr_stride = 56,
	.attr_address = 24,
};

static struct flat_guest guest;

static void put(uint64_t gva, const void *bytes, size_t size)
{
	memcpy(guest.memory + (gva - BASE), bytes, size);
}

static void put_u64(uint64_t gva, uint64_t value)
{
	put(gva, &value, sizeof(value));
}

/* Two notes, as in Debian's modules: the build ID is the second one. */
static void make_notes(uint64_t at, unsigned int number)
{
	const uint32_t property[4] = { 4, 0, 5, 0x554e47 }, header[4] = { 4, 20, 3, 0x554e47 };

	put_u64(at + layout.notes, 2);
	put_u64(at + layout.attrs + layout.attr_size, sizeof(property));
	put_u64(at + layout.attrs + layout.attr_address, at + 0x200);
	put_u64(at + layout.attrs + layout.attr_stride + layout.attr_size, sizeof(header) + 20);
	put_u64(at + layout.attrs + layout.attr_stride + layout.attr_address, at + 0x300);
	put(at + 0x200, property, sizeof(property));
	put(at + 0x300, header, sizeof(header));
	put(at + 0x300 + sizeof(header), &number, sizeof(number));
}

static void make_module(unsigned int number)
{
	uint64_t text = BASE + number * EACH, module = text + 0x2000;
	char name[32];

	snprintf(name, sizeof(name), "module_%u", number);
	put(module + layout.name, name, strlen(name) + 1);
	put_u64(module + layout.text_base, text);
	put_u64(module + layout.text_size, 0x2000);
	put_u64(module + layout.list, number + 1 < MODULES ? module + EACH + layout.list : HEAD);
	put_u64(module + layout.notes_attrs, module + 0x800);
	make_notes(module + 0x800, number);
}

static void make_guest(void)
{
	flat_guest_create(&guest, GUEST_SIZE);
	for (uint64_t at = 0; at < GUEST_SIZE / 2; at += 4096)
		flat_guest_map(&guest, guest.registers.paging.cr3, BASE + at, at, 4096, 0);
	for (unsigned int i = 0; i < MODULES; i++)
		make_module(i);
	put_u64(HEAD, BASE + 0x2000 + layout.list);
}

static struct module_list read_list(void)
{
	struct module_list list;

	if (module_list_read(&list, &guest.view, &guest.registers.paging, HEAD, &layout, NULL,
			     NULL) ||
	    list.count != MODULES || list.modules[MODULES - 1].build_id_size != 20)
		exit(1);
	return list;
}

static double time_of_read(void)
{
	uint64_t begin = bench_time(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned int i = 0; i < READS; i++) {
		struct module_list list = read_list();

		module_list_free(&list);
	}
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / READS;
}

/* The time for a chain with COUNT addresses in modules, each in a different one. */
static double time_of_check(struct module_presence *presence, unsigned int count)
{
	uint64_t addresses[DEPTH], begin = bench_time(CLOCK_THREAD_CPUTIME_ID);
	struct guest_callchain chain = { .addresses = addresses,
					 .capacity = DEPTH,
					 .kernel_depth = DEPTH };

	for (unsigned int i = 0; i < DEPTH; i++)
		addresses[i] = i < count ? BASE + (i * 37 % MODULES) * EACH + 8 : KERNEL + 64ul * i;
	for (uint64_t time = 1; time <= CHECKS; time++)
		module_presence_check(presence, &guest.view, &guest.registers.paging, time, &chain);
	if (chain.flags || chain.kernel_depth != DEPTH)
		exit(1);
	return (double)(bench_time(CLOCK_THREAD_CPUTIME_ID) - begin) / CHECKS;
}

int main(void)
{
	struct module_presence_tables tables = { .image_start = KERNEL,
						 .image_end = KERNEL + 0x1000000 };
	double reads[RUNS_MAX], none[RUNS_MAX], one[RUNS_MAX], three[RUNS_MAX], baseline;
	struct module_presence *presence;
	struct module_list list;

	make_guest();
	list = read_list();
	tables.modules = list.modules;
	tables.module_count = list.count;
	if (module_presence_create(&presence, &tables, list.modules, list.count, NULL))
		exit(1);
	for (unsigned int i = 0; i < RUNS; i++) {
		reads[i] = time_of_read() / 1000;
		none[i] = time_of_check(presence, 0);
		one[i] = time_of_check(presence, 1);
		three[i] = time_of_check(presence, 3);
	}
	baseline = bench_median(none, RUNS);
	bench_print("read the list of 100 modules", bench_median(reads, RUNS), "us");
	bench_print_relative("check of a sample in a module", bench_median(one, RUNS), "ns",
			     "in no module", baseline);
	bench_print_relative("check of a sample in three modules", bench_median(three, RUNS), "ns",
			     "in no module", baseline);
	module_presence_free(presence);
	module_list_free(&list);
	flat_guest_destroy(&guest);
	return 0;
}
