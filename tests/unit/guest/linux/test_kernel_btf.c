/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/symbols/btf_file.h"

#define FIRST 0x600000ull /* GPA of init_task */
#define STACK 0x610000ull

struct given {
	struct task_guest guest;
	struct guest_kernel kernel;
	struct btf_image image;
	struct span btf;
};

/* PID: its offset in the BTF. */
static void make(struct given *given, uint32_t pid)
{
	const struct {
		const char *name;
		uint64_t address;
	} symbols[] = { { "init_task", DIRECT + FIRST },
			{ "__start_init_stack", DIRECT + STACK },
			{ "__end_init_stack", DIRECT + STACK + 0x4000 },
			{ "current_task", DIRECT + 0x700000 },
			{ "gdt_page", DIRECT + 0x701000 } };
	const struct btf_image_member members[] = { { "pid", pid },    { "tgid", 0x20 },
						    { "comm", 0x40 },  { "mm", 0x60 },
						    { "stack", 0x68 }, { 0 } };

	task_guest_make(&given->guest);
	given->kernel = (struct guest_kernel){ .paging = given->guest.kernel,
					       .symbols = symbols_new(),
					       .per_cpu = symbols_new() };
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		symbols_add(given->kernel.symbols, symbols[i].address, 8, 'D', symbols[i].name,
			    NULL);
	symbols_finish(given->kernel.symbols);
	symbols_finish(given->kernel.per_cpu);
	task_guest_put(&given->guest, FIRST + 0x18, 7);
	task_guest_put(&given->guest, FIRST + 0x68, DIRECT + STACK);
	memcpy(given->guest.guest.memory + FIRST + 0x40, "swapper/0", 10);
	btf_image_start(&given->image);
	btf_image_add_struct(&given->image, "task_struct", 0x100, members);
	btf_image_add_struct(&given->image, "mm_struct", 0x100,
			     (struct btf_image_member[]){ { "pgd", 0x50 }, { 0 } });
	given->btf = btf_image_finish(&given->image);
}

static void release(struct given *given)
{
	symbols_free(given->kernel.symbols);
	symbols_free(given->kernel.per_cpu);
	task_guest_free(&given->guest);
}

TEST(kernel_btf, from_a_file_is_used_if_it_matches)
{
	FIXTURE(struct given, given, make, release, 0x10);
	CHECK_EQUAL(guest_kernel_use_btf(&given.kernel, &given.guest.guest.view, given.btf), 0);
	CHECK(given.kernel.tasks.known);
	CHECK_EQUAL(given.kernel.tasks.pid, 0x10);
	CHECK(!given.kernel.vmas.known);
}

TEST(kernel_btf, of_another_kernel_is_refused)
{
	FIXTURE(struct given, given, make, release, 0x18);
	CHECK_EQUAL(guest_kernel_use_btf(&given.kernel, &given.guest.guest.view, given.btf),
		    -EILSEQ);
	CHECK(!given.kernel.tasks.known);
	CHECK_EQUAL(guest_kernel_use_btf(&given.kernel, &given.guest.guest.view,
					 span_of(given.btf.data, 8)),
		    -EINVAL);
}

TEST(kernel_btf, is_ignored_if_the_kernel_has_its_own)
{
	FIXTURE(struct given, given, make, release, 0x10);
	given.kernel.tasks.known = true;
	CHECK_EQUAL(guest_kernel_use_btf(&given.kernel, &given.guest.guest.view, given.btf), 0);
	CHECK_EQUAL(given.kernel.tasks.pid, 0);
}

TEST(btf_file, is_a_copy_of_the_kernel_s_or_in_an_elf_file)
{
	char path[] = "/tmp/kvmscope-btf-XXXXXX";
	const uint8_t bytes[] = { 0x9f, 0xeb, 1, 0 };
	int fd = mkstemp(path);
	uint8_t *data;
	size_t size;

	REQUIRE(fd >= 0);
	CHECK_EQUAL(btf_file_load(path, &data, &size), -EINVAL);
	REQUIRE_EQUAL(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
	close(fd);
	REQUIRE_EQUAL(btf_file_load(path, &data, &size), 0);
	CHECK_EQUAL(size, sizeof(bytes));
	CHECK(!memcmp(data, bytes, size));
	free(data);
	unlink(path);
	CHECK_EQUAL(btf_file_load(path, &data, &size), -ENOENT);
	/* An ELF file without that section. */
	CHECK_EQUAL(btf_file_load("/proc/self/exe", &data, &size), -EINVAL);
}
