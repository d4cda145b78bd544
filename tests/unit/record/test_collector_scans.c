/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of modules that come and go between two scans, and of modules that cannot be read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/log.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/linux/module_presence.h"
#include "vmm/record/collector_kernel.h"

#define TEXT        0xffffffff9c200000ull
#define DATA        (TEXT + KERNEL_GUEST_PAGE)
#define DATA_GPA    (0x200000ull + KERNEL_GUEST_PAGE)
#define MODULE_TEXT 0xffffffffc0400000ull
#define MILLISECOND 1000000ull
#define SECOND      (1000 * MILLISECOND)

/* struct module as the BTF of the fixture has it, from the start of the data; its symbols are none
 */
#define MODULE    KERNEL_GUEST_FREE
#define LIST      (MODULE + 8)
#define NAME      (MODULE + 24)
#define TEXT_BASE (MODULE + 128)
#define TEXT_SIZE (MODULE + 136)
#define KALLSYMS  (MODULE + 384)
#define NOTHING   (MODULE + 0x1000)

struct qmp_samples {
	struct flat_guest guest;
	struct guest_registers registers; /* as the collector sees them */
	struct collector_options options;
	struct collector_kernel kernel;
	unsigned int published;
	unsigned int reported, unknown; /* reports of lists, and that modules are unknown */
	size_t count;                   /* of the latest list */
	bool unknown_first; /* modules were reported as unknown after the latest lost() */
};

static bool get_registers(void *context, struct guest_registers *registers)
{
	struct qmp_samples *looks = context;

	looks->registers.rsp += 8; /* each is another stop */
	*registers = looks->registers;
	return true;
}

static void count_kernel(void *context, const struct guest_kernel *kernel)
{
	((struct qmp_samples *)context)->published++;
}

static void lose_kernel(void *context)
{
	((struct qmp_samples *)context)->unknown_first = false;
}

static void count_modules(void *context, const struct guest_module *list, size_t count)
{
	struct qmp_samples *looks = context;

	looks->reported += list != NULL;
	looks->unknown += !list;
	looks->unknown_first |= !list;
	looks->count = count;
}

static void put(struct qmp_samples *looks, uint64_t offset, uint64_t value)
{
	flat_guest_write_u64(&looks->guest, DATA_GPA + offset, value);
}

static void load(struct qmp_samples *looks)
{
	put(looks, KERNEL_GUEST_MODULES, DATA + LIST);
	put(looks, LIST, DATA + KERNEL_GUEST_MODULES);
}

static void unload(struct qmp_samples *looks)
{
	put(looks, KERNEL_GUEST_MODULES, DATA + KERNEL_GUEST_MODULES);
}

static void break_list(struct qmp_samples *looks)
{
	put(looks, LIST, 0);
}

static void put_btf(struct qmp_samples *looks)
{
	FILE *file = fopen("tests/fuzz/corpus/btf/module", "rb");

	REQUIRE(file);
	CHECK_EQUAL(fread(looks->guest.memory + DATA_GPA + KERNEL_GUEST_BTF, 1,
			  KERNEL_GUEST_BTF_SIZE, file),
		    KERNEL_GUEST_BTF_SIZE);
	CHECK_EQUAL(fgetc(file), EOF);
	fclose(file);
}

static void begin(struct qmp_samples *looks)
{
	static const struct kernel_guest_location place = { TEXT, DATA_GPA - KERNEL_GUEST_PAGE,
							    KERNEL_GUEST_BANNER };

	memset(looks, 0, sizeof(*looks));
	flat_guest_create(&looks->guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(&looks->guest, KALLSYMS_6_12, &place);
	looks->registers = looks->guest.registers;
	put_btf(looks);
	memcpy(looks->guest.memory + DATA_GPA + NAME, "test_module", sizeof("test_module"));
	put(looks, TEXT_BASE, MODULE_TEXT);
	put(looks, TEXT_SIZE, 0x1000);
	put(looks, KALLSYMS, DATA + NOTHING);
	load(looks);
	looks->options = (struct collector_options){ .view = &looks->guest.view,
						     .registers = get_registers,
						     .publish = count_kernel,
						     .lost = lose_kernel,
						     .modules = count_modules,
						     .context = looks };
	REQUIRE_EQUAL(collector_kernel_init(&looks->kernel, &looks->options), 0);
	CHECK_EQUAL(collector_kernel_update(&looks->kernel, 0), 0);
	REQUIRE_EQUAL(looks->published, 1);
	REQUIRE_EQUAL(collector_kernel_newest(&looks->kernel)->module_count, 1);
}

static void turn(struct qmp_samples *looks, uint64_t now)
{
	CHECK_EQUAL(collector_kernel_update(&looks->kernel, now), 0);
}

static void end(struct qmp_samples *looks)
{
	collector_kernel_free(&looks->kernel);
	flat_guest_destroy(&looks->guest);
}

/* It is gone and back before its symbols were to be read anew: they are the same, and who lost it
 * is to know.
 */
TEST(collector_scans, module_that_was_unloaded_between_two_scans_is_published_again)
{
	struct qmp_samples looks;

	begin(&looks);
	unload(&looks);
	turn(&looks, SECOND);
	CHECK_EQUAL(looks.published, 2);
	load(&looks);
	turn(&looks, 2 * SECOND);
	/* However long reading took: the next one is later. */
	looks.kernel.boot.next_refresh = 4 * SECOND;
	CHECK_EQUAL(looks.published, 3);
	unload(&looks);
	turn(&looks, 3 * SECOND);
	CHECK_EQUAL(looks.count, 0);
	load(&looks);
	turn(&looks, 3 * SECOND + 50 * MILLISECOND);
	CHECK_EQUAL(looks.count, 1);
	CHECK_EQUAL(looks.reported, 4);
	CHECK_EQUAL(looks.published, 3);
	turn(&looks, 4 * SECOND);
	CHECK_EQUAL(looks.published, 4);
	turn(&looks, 5 * SECOND);
	CHECK_EQUAL(looks.published, 4);
	CHECK_EQUAL(looks.reported, 4);
	CHECK_EQUAL(looks.unknown, 0);
	end(&looks);
}

static void lose_and_regain(struct qmp_samples *looks, uint64_t now)
{
	uint64_t cr3 = looks->registers.paging.cr3;

	looks->registers.paging.cr3 = flat_guest_table(&looks->guest);
	for (unsigned int i = 0; i < 10 && !collector_kernel_is_lost(&looks->kernel); i++)
		turn(looks, now);
	CHECK(collector_kernel_is_lost(&looks->kernel));
	looks->registers.paging.cr3 = cr3;
	turn(looks, now);
	CHECK(!collector_kernel_is_lost(&looks->kernel));
}

/* Once, and before each time that the same kernel is published: its modules are not to be taken for
 * there. */
static void check_unknown_for_good(struct qmp_samples *looks, unsigned int published)
{
	CHECK_EQUAL(looks->unknown, 1);
	CHECK_EQUAL(looks->published, published);
	load(looks);
	turn(looks, 20 * SECOND);
	unload(looks);
	turn(looks, 30 * SECOND);
	CHECK_EQUAL(looks->unknown, 1);
	CHECK_EQUAL(looks->published, published);
	lose_and_regain(looks, 40 * SECOND);
	CHECK_EQUAL(looks->published, published + 1);
	CHECK(looks->unknown_first);
	CHECK_EQUAL(looks->unknown, 2);
}

TEST(collector_scans, unreadable_list_leaves_no_module_known)
{
	struct qmp_samples looks;

	begin(&looks);
	log_quiet(true);
	break_list(&looks);
	turn(&looks, SECOND);
	CHECK_EQUAL(looks.unknown, 0);
	looks.kernel.boot.scan.begun = 0; /* the latest scan is too old */
	turn(&looks, 10 * SECOND);
	check_unknown_for_good(&looks, 1);
	log_quiet(false);
	end(&looks);
}

/* As many places as are remembered. */
static void fill_places(struct qmp_samples *looks)
{
	struct module_timeline *places = &looks->kernel.boot.modules.timeline;
	size_t count = MODULE_TIMELINE_MAX - places->count;
	struct guest_module *list = calloc(count, sizeof(*list));
	const struct collector_scan look = { 0 };

	REQUIRE(list);
	for (size_t i = 0; i < count; i++) {
		snprintf(list[i].name, sizeof(list[i].name), "other%zu", i);
		list[i].start = MODULE_TEXT + 0x2000 * (i + 1);
		list[i].size = 0x1000;
	}
	CHECK_EQUAL(module_timeline_update(places, list, count, &look, &look), 0);
	CHECK(!places->stopped);
	free(list);
}

TEST(collector_scans, guest_that_loads_without_end_has_no_module_known)
{
	struct qmp_samples looks;

	begin(&looks);
	log_quiet(true);
	fill_places(&looks);
	unload(&looks);
	turn(&looks, 10 * SECOND);
	CHECK(looks.kernel.boot.modules.timeline.stopped);
	CHECK_EQUAL(looks.reported, 0);
	check_unknown_for_good(&looks, 1);
	log_quiet(false);
	end(&looks);
}

/* struct bpf_ksym of programs, AT_ONCE of them, and their list, after the module. */
#define PROGRAMS        (MODULE + 0x2000)
#define PROGRAM(i)      (MODULE + 0x2100 + 0x80 * (i))
#define PROGRAM_TEXT(i) (MODULE_TEXT + 0x10000 + 0x1000 * (i))
#define AT_ONCE         16
#define CHANGES         ((MODULE_TIMELINE_MAX / 2 + 1000) / AT_ONCE)

static const struct bpf_program_layout programs = {
	.head = DATA + PROGRAMS, .range = 0, .name = 16, .name_size = 64, .list = 80
};

static void link_programs(struct qmp_samples *looks, uint64_t first, uint64_t second)
{
	put(looks, first, DATA + second);
	put(looks, second + 8, DATA + first);
}

/* The next COUNT programs take the places of those before; their numbers begin with NUMBER. */
static void replace_programs(struct qmp_samples *looks, unsigned int number, unsigned int count)
{
	uint64_t before = PROGRAMS;

	looks->kernel.found[looks->kernel.found_count - 1]->programs = programs;
	for (unsigned int i = 0; i < count; i++) {
		put(looks, PROGRAM(i), PROGRAM_TEXT(i));
		put(looks, PROGRAM(i) + 8, PROGRAM_TEXT(i) + 0x800);
		snprintf((char *)looks->guest.memory + DATA_GPA + PROGRAM(i) + programs.name,
			 programs.name_size, "bpf_prog_0123456789abcdef_%u", number + i);
		link_programs(looks, before, PROGRAM(i) + programs.list);
		before = PROGRAM(i) + programs.list;
	}
	link_programs(looks, before, PROGRAMS);
}

static void replace_program(struct qmp_samples *looks, unsigned int number)
{
	replace_programs(looks, number, 1);
}

static const struct module_bound *newest_place(const struct qmp_samples *looks)
{
	const struct module_timeline *places = &looks->kernel.boot.modules.timeline;

	return &places->bounds[places->count - 1];
}

/* And its kernel is read once: the room to check samples is used again as vCPUs go on. */
TEST(collector_scans, guest_with_endless_bpf_programs_keeps_its_symbols)
{
	struct qmp_samples looks;

	begin(&looks);
	for (unsigned int i = 1; i < CHANGES; i++) {
		replace_programs(&looks, i * AT_ONCE, AT_ONCE);
		looks.kernel.boot.next_scan = 0;
		turn(&looks, i * SECOND);
		REQUIRE(!looks.kernel.boot.modules.timeline.stopped && looks.kernel.boot.current);
		CHECK(newest_place(&looks)->written && !newest_place(&looks)->end);
		CHECK_EQUAL(strtoul(strrchr(newest_place(&looks)->module.name, '_') + 1, NULL, 10),
			    i * AT_ONCE + AT_ONCE - 1);
		collector_kernel_reclaim(&looks.kernel);
	}
	CHECK_EQUAL(looks.published, 1);
	CHECK_EQUAL(looks.reported + looks.unknown, 0);
	CHECK_EQUAL(looks.kernel.boot.modules.count, 1);
	end(&looks);
}

#define FOUND (1000 * SECOND)

/* Who takes a sample has the presence that was there when it began, until settle() comes back. */
static struct {
	struct module_presence *used;
	unsigned int settled;
} user;

static void note_latest(void *context, const struct guest_module *module, uint64_t time)
{
	uint64_t *latest = context;

	*latest = time > *latest ? time : *latest;
}

/* By the presence that is there, and those that it keeps. */
static uint64_t latest_found(const struct qmp_samples *looks)
{
	uint64_t latest = 0;

	module_presence_for_each_seen(
		guest_kernel_presence(collector_kernel_newest(&looks->kernel)), note_latest,
		&latest);
	return latest;
}

static void settle(void *context)
{
	struct qmp_samples *looks = context;
	uint64_t address = PROGRAM_TEXT(0);
	struct guest_callchain chain = { .addresses = &address, .capacity = 1, .kernel_depth = 1 };

	user.settled++;
	replace_program(looks, 1); /* after the sample */
	module_presence_check(user.used, &looks->guest.view,
			      &collector_kernel_newest(&looks->kernel)->paging, FOUND, &chain);
	replace_program(looks, 2);
	CHECK_EQUAL(latest_found(looks), FOUND);
}

TEST(collector_scans, modules_stay_until_the_check_of_a_sample_is_done)
{
	struct qmp_samples looks;

	begin(&looks);
	looks.options.settle = settle;
	replace_program(&looks, 1);
	turn(&looks, SECOND);
	user.used = guest_kernel_presence(collector_kernel_newest(&looks.kernel));
	user.settled = 0;
	replace_program(&looks, 2);
	looks.kernel.boot.next_scan = 0;
	turn(&looks, 100 * SECOND);
	CHECK(guest_kernel_presence(collector_kernel_newest(&looks.kernel)) != user.used);
	collector_kernel_reclaim(&looks.kernel);
	CHECK_EQUAL(user.settled, 1);
	CHECK_EQUAL(latest_found(&looks), 0); /* what it used was freed */
	end(&looks);
}

TEST(collector_scans, bpf_programs_of_remote_guests_are_not_scanned)
{
	struct qmp_samples looks;

	begin(&looks);
	replace_program(&looks, 1);
	looks.guest.view.remote = true;
	turn(&looks, SECOND);
	CHECK_EQUAL(looks.kernel.boot.modules.timeline.count, 1);
	looks.guest.view.remote = false;
	looks.kernel.boot.next_scan = 0;
	turn(&looks, 100 * SECOND);
	CHECK_EQUAL(looks.kernel.boot.modules.timeline.count, 2);
	end(&looks);
}

#define WAIT (20 * MILLISECOND)

/* A scan waits for the head of the list. */
static int wait_and_read(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct qmp_samples *looks = view->context;
	struct timespec left = { .tv_nsec = (long)WAIT };

	if (gpa == DATA_GPA + KERNEL_GUEST_MODULES)
		while (nanosleep(&left, &left) && errno == EINTR)
			;
	if (gpa > looks->guest.size || size > looks->guest.size - gpa)
		return -EFAULT;
	memcpy(to, looks->guest.memory + gpa, size);
	return 0;
}

/* ns from a scan that waited for memory, local or remote, to the next one. */
static uint64_t pause_behind_wait(bool remote)
{
	struct qmp_samples looks;
	uint64_t pause;

	begin(&looks);
	looks.guest.region.hva = NULL;
	looks.guest.view.read = wait_and_read;
	looks.guest.view.context = &looks;
	looks.guest.view.remote = remote;
	turn(&looks, SECOND);
	CHECK(looks.kernel.boot.scanned);
	pause = looks.kernel.boot.next_scan - SECOND;
	end(&looks);
	return pause;
}

/* Waiting takes no CPU time, so the duration of a remote guest's scans is measured by the clock. */
TEST(collector_scans, scans_of_remote_guests_get_a_tenth_of_the_time)
{
	CHECK(pause_behind_wait(true) >= 9 * WAIT);
	CHECK(pause_behind_wait(false) >= 50 * MILLISECOND);
}
