/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel as reported by the guest's agent: parsing of the table, and confirmation by guest
 * memory.
 */
#include "vmm/guest/linux/reported_kernel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/agent_protocol.h"
#include "shared/error.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/record/collector.h"

#define TEXT     0xffffffff9c200000ull
#define TEXT_GPA 0x200000ull
#define DATA_GPA (TEXT_GPA + KERNEL_GUEST_PAGE)
#define DATA     (TEXT + KERNEL_GUEST_PAGE)
#define MODULE   0xffffffffc0400000ull
/* Where the module's note with its build id is. */
#define NOTE (KERNEL_GUEST_FREE + 0x100ull)

static const struct kernel_guest_location place = { TEXT, TEXT_GPA, KERNEL_GUEST_BANNER };

struct table {
	uint8_t bytes[65536] __attribute__((aligned(8)));
	size_t size;
};

static struct table table;

static void append(const void *bytes, size_t size)
{
	if (size)
		memcpy(table.bytes + table.size, bytes, size);
	table.size += size;
}

__attribute__((format(printf, 1, 2))) static void add_line(const char *format, ...)
{
	char line[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	append(line, strlen(line));
}

static struct agent_module module_at(const char *name, uint64_t start)
{
	struct agent_module module = {
		.start = start, .size = 0x5000, .note = DATA + NOTE, .build_id_size = 20
	};

	snprintf(module.name, sizeof(module.name), "%s", name);
	memset(module.build_id, 0xcd, sizeof(module.build_id));
	return module;
}

static void begin_table(const struct agent_module *modules, uint32_t count)
{
	struct agent_kernel head = { .modules_hash = 7, .modules = count, .build_id_size = 20 };

	memset(head.build_id, 0xab, sizeof(head.build_id));
	table.size = 0;
	append(&head, sizeof(head));
	append(modules, count * sizeof(*modules));
}

/* The symbols of kernel_guest.c, moved by OFFSET. */
static void add_kernel(uint64_t offset)
{
	static const char *const handlers[KERNEL_GUEST_HANDLERS] = { "asm_exc_divide_error",
								     "asm_exc_invalid_op",
								     "asm_exc_general_protection",
								     "asm_exc_page_fault" };
	unsigned long long text = TEXT + offset, data = DATA + offset;

	add_line("0000000000000000 A __per_cpu_start\n");
	add_line("%016llx T _text\n", text);
	for (unsigned int i = 0; i < KERNEL_GUEST_HANDLERS; i++)
		add_line("%016llx T %s\n", text + 0x100 + i * 0x40ull, handlers[i]);
	add_line("%016llx t function_500\n", text + 0x1000 + 500 * 0x40);
	add_line("%016llx t function_501\n", text + 0x1000 + 501 * 0x40);
	add_line("%016llx T _etext\n", text + 0x100000);
	add_line("%016llx D linux_banner\n", data);
	add_line("%016llx R __start_notes\n", data + 0x1000);
	add_line("%016llx R __stop_notes\n", data + 0x1024);
	add_line("%016llx D jiffies_64\n", data + KERNEL_GUEST_TICKS);
}

/* Its functions at 0x40 and 0x1010 of it. */
static void add_module(const char *name, uint64_t start)
{
	add_line("%016llx t %s_two\t[%s]\n", (unsigned long long)start + 0x1010, name, name);
	add_line("%016llx t %s_one\t[%s]\n", (unsigned long long)start + 0x40, name, name);
}

static struct reported_kernel *take_apart(int expected)
{
	struct reported_kernel *reported = NULL;

	CHECK_EQUAL(reported_kernel_create(&reported, span_of(table.bytes, table.size), NULL),
		    expected);
	return reported;
}

/* A guest with unreadable kallsyms. */
static void make_guest(struct flat_guest *guest)
{
	flat_guest_create(guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(guest, KALLSYMS_6_12, &place);
	guest->memory[DATA_GPA + KERNEL_GUEST_TABLES + 8]++;
}

/* The note of the module's build id. */
static void load_module(struct flat_guest *guest)
{
	memset(guest->memory + DATA_GPA + NOTE + 16, 0xcd, 20);
}

static int find(struct flat_guest *guest, const struct reported_kernel *reported,
		struct guest_kernel **kernel)
{
	*kernel = NULL;
	CHECK_EQUAL(guest_kernel_find(kernel, &guest->view, &guest->registers), -ENOENT);
	return guest_kernel_find_reported(kernel, &guest->view, &guest->registers, reported);
}

TEST(reported_kernel, has_symbols_and_modules)
{
	const struct agent_module modules[] = { module_at("zeta", MODULE),
						module_at("alpha", MODULE + 0x8000) };
	struct reported_kernel *reported;
	struct symbol symbol;

	begin_table(modules, 2);
	add_kernel(0);
	add_module("zeta", MODULE);
	add_module("alpha", MODULE + 0x8000);
	add_module("bpf", MODULE + 0x10000); /* of a module that is not reported */
	add_line("%016llx t init_of_alpha\t[alpha]\n", MODULE + 0x20000); /* not in it */
	reported = take_apart(0);
	REQUIRE(reported != NULL);
	CHECK_EQUAL(reported->modules_hash, 7);
	CHECK_EQUAL(reported->module_count, 2);
	CHECK_STRING(reported->modules[0].name, "alpha");
	CHECK_EQUAL(reported->modules[0].start, MODULE + 0x8000);
	CHECK_EQUAL(reported->modules[0].size, 0x2000);
	CHECK_EQUAL(reported->modules[0].build_id_gva, DATA + NOTE + 16);
	CHECK_EQUAL(symbols_count(reported->per_cpu), 1);
	REQUIRE(symbols_find(reported->symbols, MODULE + 0x1011, &symbol));
	CHECK_STRING(symbol.name, "zeta_two");
	CHECK_STRING(symbol.module, "zeta");
	CHECK_EQUAL(symbol.end, MODULE + 0x2000);
	REQUIRE(symbols_find(reported->symbols, TEXT + 0x1000 + 500 * 0x40 + 3, &symbol));
	CHECK_STRING(symbol.name, "function_500");
	CHECK_EQUAL(symbol.end - symbol.start, 0x40);
	CHECK(!symbols_find(reported->symbols, MODULE + 0x10041, &symbol));
	CHECK(!symbols_find(reported->symbols, MODULE + 0x20000, &symbol));
	reported_kernel_free(reported);
}

/*
 * As since Linux 6.4: the text of one module is between the text and data of another, whose size
 * covers both.
 */
TEST(reported_kernel, memory_between_pieces_of_a_module_is_not_its_own)
{
	const struct agent_module modules[] = { module_at("alpha", MODULE),
						module_at("beta", MODULE + 0x2000) };
	struct reported_kernel *reported;
	struct symbol symbol;

	begin_table(modules, 2);
	add_kernel(0);
	add_module("alpha", MODULE);
	add_module("beta", MODULE + 0x2000);
	add_line("%016llx d alpha_data\t[alpha]\n", MODULE + 0x4800);
	add_line("%016llx t bpf_prog\t[bpf]\n", MODULE + 0x3800);
	reported = take_apart(0);
	REQUIRE(reported != NULL);
	REQUIRE_EQUAL(reported->module_count, 2);
	CHECK_STRING(reported->modules[0].name, "alpha");
	CHECK_EQUAL(reported->modules[0].size, 0x2000);
	CHECK_STRING(reported->modules[1].name, "beta");
	CHECK_EQUAL(reported->modules[1].size, 0x2000);
	REQUIRE(symbols_find(reported->symbols, MODULE + 0x1fff, &symbol));
	CHECK_STRING(symbol.name, "alpha_two");
	CHECK_EQUAL(symbol.end, MODULE + 0x2000);
	REQUIRE(symbols_find(reported->symbols, MODULE + 0x37ff, &symbol));
	CHECK_STRING(symbol.name, "beta_two");
	CHECK_EQUAL(symbol.end, MODULE + 0x3800);
	CHECK(!symbols_find(reported->symbols, MODULE + 0x2001, &symbol));
	CHECK(!symbols_find(reported->symbols, MODULE + 0x3801, &symbol));
	CHECK(!symbols_find(reported->symbols, MODULE + 0x4801, &symbol));
	reported_kernel_free(reported);
}

/* Invalid lines are skipped; ambiguous modules are left out. */
/* A head, EMPTY empty lines and COUNT lines with a symbol. */
static void take_many(size_t empty, size_t count, int expected)
{
	static const char line[] = "ffffffff9c200000 T some\n";
	struct agent_kernel head = { .build_id_size = 20 };
	size_t length = sizeof(line) - 1, size = sizeof(head) + empty + count * length;
	uint8_t *bytes = malloc(size), *at = bytes;
	struct reported_kernel *reported = NULL;

	REQUIRE(bytes != NULL);
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	memset(at, '\n', empty);
	at += empty;
	for (size_t i = 0; i < count; i++, at += length)
		memcpy(at, line, length);
	CHECK_EQUAL(reported_kernel_create(&reported, span_of(bytes, size), NULL), expected);
	reported_kernel_free(reported);
	free(bytes);
}

TEST(reported_kernel, only_lines_with_symbols_are_counted)
{
	take_many(REPORTED_KERNEL_SYMBOLS_MAX, 1, 0);
	take_many(0, REPORTED_KERNEL_SYMBOLS_MAX + 1, -EFBIG);
}

TEST(reported_kernel, refuses_impossible_values)
{
	struct agent_module modules[] = { module_at("one", MODULE),
					  module_at("other", MODULE + 0x1000),
					  module_at("user", 0x400000),
					  module_at("bare", MODULE + 0x40000),
					  module_at("a b", MODULE + 0x80000) };
	struct reported_kernel *reported;

	modules[3].build_id_size = 0;
	begin_table(modules, 5);
	add_line("nonsense\n\n%016llx\n%016llx T\n", TEXT, TEXT);
	add_line("%016llx T evil\x1b[2J\n", TEXT);
	add_line("00ffffffff9c200000 T long\n");
	for (size_t i = 0; i < 5; i++)
		add_module(modules[i].name, modules[i].start);
	add_line("%016llx T cut", TEXT);
	reported = take_apart(0);
	REQUIRE(reported != NULL);
	CHECK_EQUAL(reported->module_count,
		    0); /* the first two overlap: it is unknown which is wrong */
	CHECK_EQUAL(symbols_count(reported->symbols), 4);
	reported_kernel_free(reported);
	begin_table(modules, 0);
	CHECK(take_apart(-EINVAL) == NULL);
	add_module("one", MODULE); /* which is not reported */
	CHECK(take_apart(-EINVAL) == NULL);
	begin_table(modules, 1);
	table.size -= 8;
	CHECK(take_apart(-EINVAL) == NULL);
	begin_table(modules, 1);
	((struct agent_kernel *)table.bytes)->modules = AGENT_KERNEL_MODULES_MAX + 1;
	CHECK(take_apart(-EINVAL) == NULL);
	table.size = 0;
	CHECK(take_apart(-EINVAL) == NULL);
}

TEST(reported_kernel, is_used_without_kallsyms)
{
	struct guest_kernel *kernel;
	struct reported_kernel *reported;
	struct symbol symbol;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	begin_table(NULL, 0);
	add_kernel(0);
	reported = take_apart(0);
	REQUIRE_EQUAL(find(&guest, reported, &kernel), 0);
	reported_kernel_free(reported);
	CHECK_EQUAL(kernel->text_start, TEXT);
	CHECK_EQUAL(kernel->text_end, TEXT + 0x100000);
	CHECK_STRING(kernel->release, "6.99.1-test");
	CHECK_EQUAL(kernel->build_id_size, 20);
	REQUIRE(symbols_find(kernel->symbols, TEXT + 0x1000 + 500 * 0x40 + 3, &symbol));
	CHECK_STRING(symbol.name, "function_500");
	guest_kernel_free(kernel);
}

/* Without page-table isolation a top table is one page at any address. */
TEST(reported_kernel, is_used_with_single_top_tables)
{
	struct guest_kernel *kernel;
	struct reported_kernel *reported;
	uint64_t top;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	do
		top = flat_guest_table(&guest);
	while (!(top & 0x1000));
	memcpy(guest.memory + top, guest.memory + guest.registers.paging.cr3, 0x1000);
	guest.registers.paging.cr3 = top;
	begin_table(NULL, 0);
	add_kernel(0);
	reported = take_apart(0);
	REQUIRE_EQUAL(find(&guest, reported, &kernel), 0);
	CHECK_EQUAL(kernel->text_start, TEXT);
	reported_kernel_free(reported);
	guest_kernel_free(kernel);
}

/* A report of another boot, another build or nonsense is not used. */
TEST(reported_kernel, must_match_memory)
{
	struct guest_kernel *kernel;
	struct reported_kernel *reported;

	FIXTURE(struct flat_guest, guest, make_guest, flat_guest_destroy);
	begin_table(NULL, 0);
	add_kernel(0x200000);
	reported = take_apart(0);
	CHECK_EQUAL(find(&guest, reported, &kernel), -EINVAL);
	reported_kernel_free(reported);
	begin_table(NULL, 0);
	add_kernel(0);
	reported = take_apart(0);
	REQUIRE(reported != NULL);
	reported->build_id[19] ^= 1;
	CHECK_EQUAL(find(&guest, reported, &kernel), -EILSEQ);
	CHECK(strstr(error_message(), "is not the running one"));
	reported->build_id[19] ^= 1;
	kernel_guest_write_gate(&guest, 13, TEXT + 0x1000 + 50 * 0x40 + 8);
	CHECK_EQUAL(find(&guest, reported, &kernel), -EINVAL);
	CHECK(strstr(error_message(), "IDT"));
	reported_kernel_free(reported);
	begin_table(NULL, 0);
	add_line("%016llx T something\n", TEXT);
	reported = take_apart(0);
	CHECK_EQUAL(find(&guest, reported, &kernel), -EINVAL);
	reported_kernel_free(reported);
}

static void check_modules(const struct guest_kernel *kernel, const struct flat_guest *guest,
			  size_t expected)
{
	struct guest_module *modules = NULL;
	size_t count = 0;

	CHECK_EQUAL(guest_kernel_list_modules(kernel, &guest->view, &modules, &count), 0);
	CHECK_EQUAL(count, expected);
	free(modules);
}

/*
 * A kernel without BTF has no readable module list: reported modules with a matching build id are
 * used.
 */
TEST(reported_kernel, modules_must_be_in_memory)
{
	const struct agent_module module = module_at("alpha", MODULE);
	struct guest_kernel *kernel = NULL, *newer = NULL;
	struct reported_kernel *reported;
	struct symbol symbol;

	FIXTURE(struct flat_guest, guest, flat_guest_create, flat_guest_destroy, KERNEL_GUEST_SIZE);
	kernel_guest_start(&guest, KALLSYMS_6_12, &place);
	REQUIRE_EQUAL(guest_kernel_find(&kernel, &guest.view, &guest.registers), 0);
	CHECK(!guest_kernel_has_module_list(kernel));
	begin_table(&module, 1);
	add_kernel(0);
	add_module("alpha", MODULE);
	reported = take_apart(0);
	load_module(&guest);
	REQUIRE_EQUAL(guest_kernel_use_report(kernel, reported), 0);
	check_modules(kernel, &guest, 1);
	REQUIRE_EQUAL(guest_kernel_refresh(&newer, kernel, &guest.view), 0);
	CHECK_EQUAL(newer->module_count, 1);
	REQUIRE(symbols_find(newer->symbols, MODULE + 0x41, &symbol));
	CHECK_STRING(symbol.name, "alpha_one");
	CHECK_STRING(symbol.module, "alpha");
	guest.memory[DATA_GPA + NOTE + 16] = 0; /* it is unloaded, and its memory is reused */
	check_modules(newer, &guest, 0);
	guest_kernel_free(kernel);
	REQUIRE_EQUAL(guest_kernel_refresh(&kernel, newer, &guest.view), 0);
	CHECK(!symbols_find(kernel->symbols, MODULE + 0x41, &symbol));
	load_module(&guest); /* its note is unchanged, and its text may be elsewhere */
	check_modules(kernel, &guest, 0);
	reported_kernel_free(reported);
	reported = take_apart(0);
	REQUIRE_EQUAL(guest_kernel_use_report(kernel, reported), 0);
	check_modules(kernel, &guest, 1);
	reported->build_id[0] ^= 1;
	CHECK_EQUAL(guest_kernel_use_report(kernel, reported), -EILSEQ);
	check_modules(kernel, &guest, 0);
	reported_kernel_free(reported);
	guest_kernel_free(kernel);
	guest_kernel_free(newer);
}

/* A recording of a guest whose agent reports the table. */
struct recording {
	struct flat_guest guest;
	struct ring *ring;
	char directory[64], path[96];
	struct collector *collector;
	uint64_t stops;     /* the collector's thread alone, as the next one */
	uint64_t hash;      /* of the last request */
	atomic_ulong table; /* the hash of the reported one */
	atomic_uint requests;
	_Atomic uint64_t text;  /* of the last published kernel; 0: none */
	atomic_size_t modules;  /* of that */
	atomic_bool has_symbol; /* of the module */
};

static bool get_registers(void *context, struct guest_registers *registers)
{
	struct recording *recording = context;

	*registers = recording->guest.registers;
	registers->rsp += 8 * recording->stops++;
	return true;
}

static struct reported_kernel *report(void *context, uint64_t modules_hash)
{
	struct recording *recording = context;
	struct reported_kernel *reported = NULL;

	recording->hash = modules_hash;
	if (modules_hash != atomic_load(&recording->table))
		reported_kernel_create(&reported, span_of(table.bytes, table.size), NULL);
	atomic_fetch_add(&recording->requests, 1);
	return reported;
}

static void take_kernel(void *context, const struct guest_kernel *kernel)
{
	struct recording *recording = context;
	struct symbol symbol;

	atomic_store(&recording->text, kernel ? kernel->text_start : 0);
	atomic_store(&recording->modules, kernel ? kernel->module_count : 0);
	atomic_store(&recording->has_symbol,
		     kernel && symbols_find(kernel->symbols, MODULE + 0x41, &symbol) &&
			     !strcmp(symbol.name, "alpha_one"));
}

static bool has_text(struct recording *recording)
{
	return atomic_load(&recording->text) == TEXT;
}

static bool has_module(struct recording *recording)
{
	return atomic_load(&recording->modules) == 1 && atomic_load(&recording->has_symbol);
}

static bool has_none(struct recording *recording)
{
	return !atomic_load(&recording->modules) && !atomic_load(&recording->has_symbol);
}

static bool was_requested_again(struct recording *recording)
{
	return atomic_load(&recording->requests) >= 2;
}

static bool wait_for(struct recording *recording, bool (*condition)(struct recording *))
{
	for (int i = 0; i < 60000; i++, usleep(1000))
		if (condition(recording))
			return true;
	return false;
}

static void record(struct recording *recording)
{
	struct collector_options options = {
		.rings = &recording->ring,
		.ring_count = 1,
		.view = &recording->guest.view,
		.registers = get_registers,
		.publish = take_kernel,
		.kernel_report = report,
		.context = recording,
		.output = { .path = recording->path, .frequency = 1000, .vcpus = 1, .vmm_pid = 77 },
	};

	strcpy(recording->directory, "/tmp/kvmscope-test-XXXXXX");
	REQUIRE(mkdtemp(recording->directory));
	snprintf(recording->path, sizeof(recording->path), "%s/perf.data", recording->directory);
	REQUIRE_EQUAL(ring_create(&recording->ring, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(collector_start(&recording->collector, &options), 0);
}

static void end_recording(struct recording *recording)
{
	struct collector_statistics statistics;

	CHECK_EQUAL(collector_stop(recording->collector, &statistics), 0);
	CHECK(statistics.kernel_found == has_text(recording));
	unlink(recording->path);
	CHECK_EQUAL(rmdir(recording->directory), 0);
	ring_destroy(recording->ring);
	flat_guest_destroy(&recording->guest);
}

TEST(reported_kernel, is_requested_if_memory_has_no_symbols)
{
	const struct agent_module module = module_at("alpha", MODULE);
	struct recording recording = { .table = 7 };

	make_guest(&recording.guest);
	load_module(&recording.guest);
	begin_table(&module, 1);
	add_kernel(0);
	add_module("alpha", MODULE);
	record(&recording);
	REQUIRE(recording.collector != NULL);
	CHECK(wait_for(&recording, has_text));
	/* The reported module is loaded, then unloaded, then reported again. */
	CHECK(wait_for(&recording, has_module));
	recording.guest.memory[DATA_GPA + NOTE + 16] = 0;
	CHECK(wait_for(&recording, has_none));
	load_module(&recording.guest);
	((struct agent_kernel *)table.bytes)->modules_hash = 8;
	atomic_store(&recording.table, 8);
	CHECK(wait_for(&recording, has_module));
	end_recording(&recording);
	CHECK(recording.hash == 7 || recording.hash == 8);
}

TEST(reported_kernel, of_another_boot_is_refused)
{
	struct recording recording = { .table = 7 };

	make_guest(&recording.guest);
	begin_table(NULL, 0);
	add_kernel(0x200000);
	record(&recording);
	REQUIRE(recording.collector != NULL);
	CHECK(wait_for(&recording, was_requested_again));
	CHECK(!has_text(&recording));
	end_recording(&recording);
}
