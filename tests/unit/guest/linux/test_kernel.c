/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/error.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/page_walk.h"

#define TEXT           0xffffffff9c200000ull
#define TEXT_GPA       0x200000ull
#define DATA_GPA       (TEXT_GPA + KERNEL_GUEST_PAGE)
#define DATA           (TEXT + KERNEL_GUEST_PAGE)
#define TABLES         (DATA + KERNEL_GUEST_TABLES)
#define COUNT          KERNEL_GUEST_SYMBOLS
#define EARLY_HANDLERS (TEXT + KERNEL_GUEST_EARLY_HANDLERS)

static const struct kernel_guest_location place = { TEXT, TEXT_GPA, KERNEL_GUEST_BANNER };

static void make_guest(struct flat_guest *guest, enum kallsyms_layout layout)
{
	flat_guest_create(guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(guest, layout, &place);
}

static int find(struct flat_guest *guest, struct guest_kernel **kernel)
{
	*kernel = NULL;
	return guest_kernel_find(kernel, &guest->view, &guest->registers);
}

static void check_kernel(const struct guest_kernel *kernel)
{
	struct symbol symbol;

	CHECK_EQUAL(kernel->text_start, TEXT);
	CHECK_EQUAL(kernel->text_end, TEXT + 0x100000);
	CHECK_STRING(kernel->release, "6.99.1-test");
	CHECK_EQUAL(kernel->build_id_size, 20);
	CHECK_EQUAL(kernel->build_id[19], 0xab);
	CHECK_EQUAL(symbols_count(kernel->symbols),
		    COUNT - 1); /* the per-CPU symbol is not an address */
	REQUIRE(symbols_find(kernel->symbols, TEXT + 0x1000 + 500 * 0x40 + 3, &symbol));
	CHECK_STRING(symbol.name, "function_500");
	CHECK_EQUAL(symbol.end - symbol.start, 0x40);
	CHECK(!symbols_find(kernel->symbols, 0x1234, &symbol));
	CHECK(!symbols_find(kernel->symbols, DATA + 0x3000, &symbol));
	CHECK(!kernel->orc);
	CHECK_EQUAL(kernel->module_count, 0);
}

TEST(kernel, is_found_with_every_layout_of_kallsyms)
{
	for (int layout = 0; layout < KALLSYMS_32BIT; layout++) {
		struct guest_kernel *kernel;
		struct flat_guest guest;

		make_guest(&guest, (enum kallsyms_layout)layout);
		CHECK_EQUAL(find(&guest, &kernel), 0);
		if (kernel)
			check_kernel(kernel);
		guest_kernel_free(kernel);
		flat_guest_destroy(&guest);
	}
}

TEST(kernel, is_found_from_the_user_half_of_kpti)
{
	struct guest_translation translation;
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	guest.registers.paging.cr3 |= 0x1000;
	guest.registers.cpl = 3;
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	check_kernel(kernel);
	CHECK_EQUAL(guest_translate(&guest.view, &kernel->paging, DATA, &translation), 0);
	guest_kernel_free(kernel);
}

TEST(kernel, symbols_that_disagree_with_the_idt_are_not_used)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	kernel_guest_write_gate(&guest, 13, TEXT + 0x1000 + 50 * 0x40 + 8);
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	CHECK(strstr(error_message(), "IDT"));
	kernel_guest_write_gate(&guest, 13, TEXT + 0x180);
	kernel_guest_write_gate(&guest, 14,
				TEXT + 0x180); /* a handler, but not that of page faults */
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
}

TEST(kernel, symbols_that_disagree_with_the_banner_are_not_used)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_7_2);
	guest.memory[DATA_GPA] = 'l';
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
	CHECK(strstr(error_message(), "linux_banner"));
}

TEST(kernel, without_exception_handlers_is_tried_later)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	guest.registers.idt_limit = 0;
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "starting"));
}

/* There is no kernel; without exception handlers no search starts. */
TEST(kernel, without_exception_handlers_is_not_searched)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	memset(guest.memory + TEXT_GPA, 0, KERNEL_GUEST_PAGE);
	memset(guest.memory + DATA_GPA, 0, KERNEL_GUEST_PAGE);
	kernel_guest_write_gate(&guest, 14, 0x100000);
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "starting"));
}

/* The exception stubs of a starting kernel, at their symbols' addresses. */
TEST(kernel, that_is_starting_is_found_by_its_early_handlers)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	for (unsigned int i = 0; i < KERNEL_GUEST_HANDLERS; i++)
		kernel_guest_write_gate(&guest, kernel_guest_vectors[i],
					EARLY_HANDLERS + kernel_guest_vectors[i] * 9);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	check_kernel(kernel);
	guest_kernel_free(kernel);
	kernel_guest_write_gate(&guest, 0, EARLY_HANDLERS + 1);
	CHECK_EQUAL(find(&guest, &kernel), -EINVAL);
}

TEST(kernel, broken_tables_are_refused)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	guest.memory[DATA_GPA + (TABLES - DATA) + 8]++; /* the first name's length */
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "kallsyms"));
}

TEST(kernel, is_not_found_in_other_memory)
{
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, KERNEL_GUEST_SIZE);
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "no Linux kernel"));
	guest.registers.paging.efer = 0; /* 32-bit paging by the same tables */
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "no Linux kernel"));
	guest.registers.paging.cr0 = CR0_PE;
	CHECK_EQUAL(find(&guest, &kernel), -ENOENT);
	CHECK(strstr(error_message(), "does not use paging"));
}

TEST(kernel, refresh_returns_a_copy)
{
	struct guest_kernel *kernel, *newer = NULL;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_5_10);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	CHECK_EQUAL(guest_kernel_refresh(&newer, kernel, &guest.view), 0);
	guest_kernel_free(kernel);
	if (newer)
		check_kernel(newer);
	guest_kernel_free(newer);
}

/* After a kexec: the old kernel's memory is intact, but the page tables in use do not map it. */
TEST(kernel, is_running_if_mapped_and_unchanged)
{
	static const struct kernel_guest_location other = { TEXT + (8ull << 20), 0x800000,
							    KERNEL_GUEST_BANNER };
	struct guest_kernel *kernel, *newer;
	struct guest_registers registers;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	registers = guest.registers;
	CHECK(guest_kernel_is_running(kernel, &guest.view, &registers));
	registers.paging.cr3 |= 0x1000; /* the user half does not map the banner */
	CHECK(guest_kernel_is_running(kernel, &guest.view, &registers));
	registers.paging.efer = 0; /* 32-bit paging */
	CHECK(guest_kernel_can_run(&registers));
	CHECK(!guest_kernel_is_running(kernel, &guest.view, &registers));
	registers.paging.cr0 = CR0_PE;
	CHECK(!guest_kernel_can_run(&registers));
	CHECK(!guest_kernel_is_running(kernel, &guest.view, &registers));

	kernel_guest_start(&guest, KALLSYMS_6_12, &other);
	CHECK(!guest_kernel_is_running(kernel, &guest.view, &guest.registers));
	REQUIRE_EQUAL(find(&guest, &newer), 0);
	CHECK(guest_kernel_is_running(newer, &guest.view, &guest.registers));
	CHECK(!guest_kernels_equal(kernel, newer));
	CHECK(guest_kernels_equal(kernel, kernel));
	guest_kernel_free(newer);
	guest_kernel_free(kernel);
}

/*
 * The same virtual addresses at other physical addresses, or with another build, are another
 * kernel's.
 */
TEST(kernel, is_not_running_if_another_one_has_its_addresses)
{
	static const struct kernel_guest_location moved = { TEXT, 0x800000, KERNEL_GUEST_BANNER };
	struct guest_registers registers;
	struct guest_kernel *kernel;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	registers = guest.registers;
	kernel_guest_start(&guest, KALLSYMS_6_12, &moved);
	CHECK(!guest_kernel_is_running(kernel, &guest.view, &guest.registers));
	CHECK(guest_kernel_is_running(kernel, &guest.view, &registers));
	guest.memory[DATA_GPA + strlen("Linux version 6.99.1-test (builder@host) (gcc) #")]++;
	CHECK(!guest_kernel_is_running(kernel, &guest.view, &registers));
	guest_kernel_free(kernel);
}

TEST(kernel, ticks_are_read)
{
	struct guest_kernel *kernel;
	uint64_t ticks;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy, KALLSYMS_6_12);
	flat_guest_write_u64(&guest, DATA_GPA + KERNEL_GUEST_TICKS, 0x123456789);
	REQUIRE_EQUAL(find(&guest, &kernel), 0);
	REQUIRE(guest_kernel_ticks(kernel, &guest.view, &ticks));
	CHECK_EQUAL(ticks, 0x123456789);
	kernel->identity.ticks_gpa = 0;
	CHECK(!guest_kernel_ticks(kernel, &guest.view, &ticks));
	guest_kernel_free(kernel);
}
