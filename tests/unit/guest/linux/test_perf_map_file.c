/* SPDX-License-Identifier: Apache-2.0 */
/* A synthetic process of a guest with its files: which perf maps are read, and which are not. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/guest/linux/perf_map_file.h"
#include "vmm/record/jit_maps.h"

#define PID     1234u
#define STARTED 5000000000ull
#define WRITE   2u
#define APPEND  02000u
#define REGULAR 0100600u
#define USER    1000u

static const struct perf_map_layout layout = {
	.known = true,
	.task_files = 0x60,
	.task_cred = 0x68,
	.task_execs = 0x70,
	.task_pid = 0x78,
	.files_table = 8,
	.table_count = 0,
	.table_slots = 8,
	.file_cred = 0,
	.file_position = 8,
	.file_dentry = 24,
	.file_inode = 32,
	.file_mode = 40,
	.file_flags = 44,
	.inode_mode = 0,
	.inode_owner = 4,
	.inode_size = 8,
	.cred_owner = 4,
	.pid_level = 0,
	.pid_numbers = 16,
	.number = 0,
	.number_size = 16,
};

struct writer {
	struct user_guest guest;
	uint64_t task, cred, files, slots, number, file, inode, memory;
	struct perf_map_file map;
	char text[256];
	size_t size;
};

static void put_u32(struct writer *writer, uint64_t gva, uint32_t value)
{
	memcpy(writer->guest.guest.memory + (gva - USER_GUEST_DIRECT), &value, sizeof(value));
}

/* The only process but the first one. */
static void make_process(struct writer *writer)
{
	struct user_guest *guest = &writer->guest;
	uint64_t first = user_guest_allocate(guest, 0x100, 64);

	guest->kernel.perf_maps = layout;
	guest->kernel.tasks = (struct guest_task_layout){ .known = true,
							  .tgid = 0,
							  .pid = 4,
							  .parent = 8,
							  .started = 16,
							  .first = first,
							  .list = 32 };
	writer->task = user_guest_allocate(guest, 0x100, 64);
	user_guest_put(guest, first + 32, writer->task + 32);
	user_guest_put(guest, writer->task + 32, first + 32);
	put_u32(writer, writer->task, PID);
	put_u32(writer, writer->task + 4, PID);
	user_guest_put(guest, writer->task + 16, STARTED);
	user_guest_put(guest, writer->task + layout.task_cred, writer->cred);
	user_guest_put(guest, writer->task + layout.task_execs, 7);
	user_guest_put(guest, writer->task + layout.task_files, writer->files);
	user_guest_put(guest, writer->task + layout.task_pid, writer->number);
}

/* The map's first page is in the page cache, as its fourth descriptor. */
static void make_file(struct writer *writer, const char *name)
{
	struct user_guest *guest = &writer->guest;

	writer->file = user_guest_file(guest, guest->root_mount,
				       user_guest_dentry(guest, guest->root, name), 77);
	writer->inode = user_guest_inode(guest, writer->file);
	writer->memory = user_guest_cache(guest, writer->file, 0, 1);
	user_guest_put(guest, writer->file + layout.file_cred, writer->cred);
	put_u32(writer, writer->file + layout.file_mode, WRITE);
	put_u32(writer, writer->inode + layout.inode_mode, REGULAR);
	put_u32(writer, writer->inode + layout.inode_owner, USER);
	user_guest_put(guest, writer->slots + 8 * 3ull, writer->file);
}

static void set_size(struct writer *writer, uint64_t size)
{
	user_guest_put(&writer->guest, writer->inode + layout.inode_size, size);
	user_guest_put(&writer->guest, writer->file + layout.file_position, size);
}

static void write_text(struct writer *writer, const char *text)
{
	memset(writer->guest.guest.memory + writer->memory, 0, 4096);
	memcpy(writer->guest.guest.memory + writer->memory, text, strlen(text));
	set_size(writer, strlen(text));
}

static bool begin(struct writer *writer)
{
	return perf_map_file_begin(&writer->map, &writer->guest.kernel, &writer->guest.guest.view,
				   PID);
}

static void set_up(struct writer *writer)
{
	struct user_guest *guest = &writer->guest;
	uint64_t table;

	memset(writer, 0, sizeof(*writer));
	user_guest_make(guest, true);
	writer->cred = user_guest_allocate(guest, 64, 64);
	writer->files = user_guest_allocate(guest, 64, 64);
	writer->slots = user_guest_allocate(guest, 64 * 8, 64);
	writer->number = user_guest_allocate(guest, 64, 64);
	table = user_guest_allocate(guest, 64, 64);
	put_u32(writer, writer->cred + layout.cred_owner, USER);
	put_u32(writer, writer->number + layout.pid_numbers, PID);
	user_guest_put(guest, writer->files + layout.files_table, table);
	put_u32(writer, table + layout.table_count, 64);
	user_guest_put(guest, table + layout.table_slots, writer->slots);
	make_process(writer);
	make_file(writer, "perf-1234.map");
	REQUIRE(begin(writer));
}

static void tear_down(struct writer *writer)
{
	user_guest_free(&writer->guest);
}

/* New content is appended to writer->text. */
static enum perf_map_result read_map(struct writer *writer)
{
	enum perf_map_result found;

	writer->size = sizeof(writer->text) - 1;
	found = perf_map_file_read(&writer->map, &writer->guest.kernel, &writer->guest.guest.view,
				   (uint8_t *)writer->text, &writer->size);
	writer->text[writer->size] = '\0';
	return found;
}

TEST(perf_map_file, grows_by_whole_lines)
{
	FIXTURE(struct writer, writer, set_up, tear_down);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_EQUAL(writer.size, 0);
	write_text(&writer, "1000 10 one\n2000 1");
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_STRING(writer.text, "1000 10 one\n");
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_EQUAL(writer.size, 0);
	write_text(&writer, "1000 10 one\n2000 10 two\n");
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_STRING(writer.text, "2000 10 two\n");
}

TEST(perf_map_file, rest_is_returned_by_the_next_reads)
{
	char text[600] = "";
	size_t total = 0;

	FIXTURE(struct writer, writer, set_up, tear_down);
	for (int i = 0; i < 40; i++)
		strcat(text, "1000 10 one\n");
	write_text(&writer, text);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_MORE);
	total += writer.size;
	CHECK_EQUAL(total % 12, 0);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_EQUAL(total + writer.size, strlen(text));
	/* A line that does not end. */
	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "1000 10 one\n", 12);
	write_text(&writer, text);
	REQUIRE(begin(&writer));
	CHECK_EQUAL(read_map(&writer), PERF_MAP_MORE);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_UNKNOWN);
}

TEST(perf_map_file, must_be_opened_and_written_by_the_program)
{
	struct writer writer;
	const struct {
		uint64_t of_file, of_inode, at;
		uint32_t value;
	} lies[] = {
		{ 1, 0, layout.file_mode, 1 },          /* open for reading */
		{ 1, 0, layout.file_flags, APPEND },    /* appends to content that is not its own */
		{ 0, 1, layout.inode_mode, 0010600 },   /* a FIFO */
		{ 0, 1, layout.inode_owner, USER + 1 }, /* another user's */
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		set_up(&writer);
		write_text(&writer, "1000 10 one\n");
		put_u32(&writer, (lies[i].of_file ? writer.file : writer.inode) + lies[i].at,
			lies[i].value);
		CHECK_EQUAL(read_map(&writer), PERF_MAP_NONE);
		CHECK_EQUAL(writer.size, 0);
		tear_down(&writer);
	}
}

/* Opened by its parent or the previous program, with the same user. */
TEST(perf_map_file, inherited_one_is_ignored)
{
	uint64_t opener;

	FIXTURE(struct writer, writer, set_up, tear_down);
	write_text(&writer, "1000 10 one\n");
	opener = user_guest_allocate(&writer.guest, 64, 64);
	put_u32(&writer, opener + layout.cred_owner, USER);
	user_guest_put(&writer.guest, writer.file + layout.file_cred, opener);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_NONE);
	user_guest_put(&writer.guest, writer.file + layout.file_cred, writer.cred);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_EQUAL(writer.size, 12);
}

TEST(perf_map_file, name_has_the_pid_in_the_own_namespace)
{
	FIXTURE(struct writer, writer, set_up, tear_down);
	write_text(&writer, "1000 10 one\n");
	put_u32(&writer, writer.number + layout.pid_level, 1);
	put_u32(&writer, writer.number + layout.pid_numbers + layout.number_size, 5);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_NONE);
	make_file(&writer, "perf-5.map");
	write_text(&writer, "2000 10 two\n");
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_STRING(writer.text, "2000 10 two\n");
	put_u32(&writer, writer.number + layout.pid_level, 1u << 30);
	REQUIRE(begin(&writer));
	CHECK_EQUAL(read_map(&writer), PERF_MAP_NONE);
}

TEST(perf_map_file, ends_with_the_program)
{
	FIXTURE(struct writer, writer, set_up, tear_down);
	write_text(&writer, "1000 10 one\n");
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	user_guest_put(&writer.guest, writer.task + layout.task_execs, 8);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_ENDED);
	REQUIRE(begin(&writer));
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	user_guest_put(&writer.guest, writer.task + 16, STARTED + 1);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_ENDED);
	put_u32(&writer, writer.task, PID + 1);
	CHECK(!begin(&writer));
}

TEST(perf_map_file, is_replaced_if_read_content_changes)
{
	static const char *const texts[] = { "1000 10 one\n", "9000 10 two\n2000 10 three\n", "" };
	struct writer writer;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		set_up(&writer);
		write_text(&writer, "1000 10 one\n2000 10 two\n");
		CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
		write_text(&writer, texts[i]);
		CHECK_EQUAL(read_map(&writer), PERF_MAP_REPLACED);
		CHECK_EQUAL(writer.size, 0);
		CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
		CHECK_STRING(writer.text, texts[i]);
		user_guest_put(&writer.guest, writer.slots + 8 * 3ull, 0);
		CHECK_EQUAL(read_map(&writer), PERF_MAP_REPLACED);
		CHECK_EQUAL(read_map(&writer), PERF_MAP_NONE);
		tear_down(&writer);
	}
}

TEST(perf_map_file, content_not_in_memory_or_being_written_is_not_read)
{
	FIXTURE(struct writer, writer, set_up, tear_down);
	write_text(&writer, "1000 10 one\n");
	user_guest_put(&writer.guest, writer.file + layout.file_position, 11);
	CHECK_EQUAL(read_map(&writer), PERF_MAP_UNKNOWN);
	set_size(&writer, 5000); /* its second page is not there */
	writer.map.offset = 4096;
	CHECK_EQUAL(read_map(&writer), PERF_MAP_UNKNOWN);
	set_size(&writer, 12);
	writer.map.offset = 0;
	CHECK_EQUAL(read_map(&writer), PERF_MAP_READ);
	CHECK_STRING(writer.text, "1000 10 one\n");
}

/* --- names by time ---------------------------------------------------------------- */

struct names {
	struct writer writer;
	struct jit_maps *maps;
	struct jit_code *code;
	bool runs;
};

static bool runs(void *context)
{
	return ((struct names *)context)->runs;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* More than JIT_CODE_LATE and the largest difference of the clocks. */
static void wait_some(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}

/* A time after this read, long enough before the next one. */
static uint64_t look_at_all(struct names *names)
{
	uint64_t time;

	jit_maps_scan(names->maps, &names->writer.guest.kernel, &names->writer.guest.guest.view,
		      runs, names, names->code);
	wait_some();
	time = now();
	wait_some();
	return time;
}

static void see_sample_of(struct names *names, uint32_t pid)
{
	const struct user_image_key key = { .kind = USER_IMAGE_ANONYMOUS };
	struct user_images *images = names->writer.guest.kernel.images;
	union {
		struct sample sample;
		uint8_t bytes[sizeof(struct sample) + sizeof(struct sample_mapping)];
	} record = { .sample = { .pid = pid, .mappings = 1 } };

	*sample_write_mappings(&record.sample) =
		(struct sample_mapping){ .start = 0x1000,
					 .end = 0x9000,
					 .image = user_image_number(user_images_find(images, &key)),
					 .images = user_images_generation(images),
					 .flags = PROT_READ | PROT_EXEC };
	jit_maps_sample(names->maps, &names->writer.guest.kernel, &record.sample);
}

static void see_sample(struct names *names)
{
	see_sample_of(names, PID);
}

static const char *name_at(struct names *names, uint64_t address, uint64_t time)
{
	struct jit_function function;

	return jit_code_find(names->code, PID, address, time, &function) ? function.name : "";
}

static void begin_names(struct names *names)
{
	*names = (struct names){ .maps = jit_maps_new(user_guest_parser()),
				 .code = jit_code_new(NULL),
				 .runs = true };
	REQUIRE(names->maps && names->code);
	set_up(&names->writer);
}

static void end_names(struct names *names)
{
	jit_maps_free(names->maps);
	jit_code_free(names->code);
	tear_down(&names->writer);
}

TEST(jit_maps, symbols_are_valid_from_the_first_to_the_last_read_of_the_program)
{
	uint64_t before, just_before, during, between, after;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	before = look_at_all(&names);
	CHECK(!jit_code_has(names.code, PID)); /* not seen */
	see_sample(&names);
	/* Another program may have been there until its identity was read, however late a
	 * JIT is with its lines. */
	just_before = now();
	during = look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, during), ""); /* no later read */
	between = look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, during), "one");
	write_text(&names.writer, "1000 10 one\n1000 20 two\n");
	after = look_at_all(&names);
	look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, before), "");
	CHECK_STRING(name_at(&names, 0x1000, just_before), "");
	CHECK_STRING(name_at(&names, 0x1000, during), "one");
	CHECK_STRING(name_at(&names, 0x100f, during), "one");
	CHECK_STRING(name_at(&names, 0x1000, between), ""); /* either of both */
	CHECK_STRING(name_at(&names, 0x100f, after), "two");
	CHECK_STRING(name_at(&names, 0x101f, after), "two");
	CHECK_STRING(name_at(&names, 0x1020, after), "");
}

TEST(jit_maps, another_program_does_not_get_its_symbols)
{
	uint64_t during, between, after;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	see_sample(&names);
	during = look_at_all(&names);
	between = look_at_all(&names);
	user_guest_put(&names.writer.guest, names.writer.task + layout.task_execs, 8);
	after = look_at_all(&names);
	see_sample(&names);
	look_at_all(&names);
	look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, during), "one");
	CHECK_STRING(name_at(&names, 0x1000, between), "");
	CHECK_STRING(name_at(&names, 0x1000, after), "");
}

TEST(jit_maps, reads_while_another_kernel_may_run_are_ignored)
{
	uint64_t during, after;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	see_sample(&names);
	names.runs = false;
	during = look_at_all(&names);
	CHECK(!jit_code_has(names.code, PID));
	names.runs = true;
	after = look_at_all(&names);
	look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, during), "");
	CHECK_STRING(name_at(&names, 0x1000, after), "one");
}

TEST(jit_maps, unreadable_map_has_no_symbols_from_then_on)
{
	uint64_t during, after;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	see_sample(&names);
	during = look_at_all(&names);
	look_at_all(&names);
	set_size(&names.writer, 5000); /* its second page is not there */
	after = look_at_all(&names);
	look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, during), "one");
	CHECK_STRING(name_at(&names, 0x1000, after), "");
	set_size(&names.writer, 12);
	look_at_all(&names);
	CHECK_STRING(name_at(&names, 0x1000, after), "one");
	jit_maps_end(names.maps, names.code);
	CHECK_STRING(name_at(&names, 0x1000, now()), "");
}

static void take_agents_map(struct names *names, uint64_t since)
{
	uint64_t bytes[16] = { 0 }, time = now();
	struct sideband_jit_code *line = (struct sideband_jit_code *)bytes;
	const struct sideband_jit_map map = { .head = { .size = sizeof(map),
							.type = SIDEBAND_JIT_MAP,
							.flags = SIDEBAND_JIT_BEGIN,
							.time = time,
							.pid = PID,
							.tid = PID },
					      .since = since };

	jit_code_apply(names->code, &map.head);
	*line = (struct sideband_jit_code){ .head = { .size = sideband_size(sizeof(*line),
									    "reported"),
						      .type = SIDEBAND_JIT_CODE,
						      .time = time,
						      .pid = PID,
						      .tid = PID },
					    .start = 0x1000,
					    .length = 0x10,
					    .since = since };
	strcpy(line->name, "reported");
	jit_code_apply(names->code, &line->head);
}

/* The agent reports from here on, and has seen the file long before it was read. */
TEST(jit_maps, symbols_reported_for_the_same_map_are_used)
{
	struct sideband round = { .size = sizeof(round), .type = SIDEBAND_ROUND };
	uint64_t since = now(), during, after;

	FIXTURE(struct names, names, begin_names, end_names);
	wait_some();
	write_text(&names.writer, "1000 10 one\n");
	see_sample(&names);
	during = look_at_all(&names);
	look_at_all(&names);
	jit_maps_end(names.maps, names.code);
	take_agents_map(&names, since);
	wait_some();
	after = now();
	wait_some();
	round.time = now();
	jit_code_apply(names.code, &round);
	CHECK_STRING(name_at(&names, 0x1000, during), "one");
	CHECK_STRING(name_at(&names, 0x1000, after), "reported");
}

/* The one before had names, too. */
TEST(jit_maps, symbols_reported_for_another_program_are_used)
{
	struct sideband round = { .size = sizeof(round), .type = SIDEBAND_ROUND };
	uint64_t since, after;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	see_sample(&names);
	look_at_all(&names);
	user_guest_put(&names.writer.guest, names.writer.task + layout.task_execs, 8);
	look_at_all(&names);
	CHECK(jit_code_has(names.code, PID));
	since = now();
	wait_some();
	see_sample(&names);
	look_at_all(&names);
	jit_maps_end(names.maps, names.code);
	take_agents_map(&names, since);
	wait_some();
	after = now();
	wait_some();
	round.time = now();
	jit_code_apply(names.code, &round);
	CHECK_STRING(name_at(&names, 0x1000, after), "reported");
}

static unsigned int reads;

static int count_read(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	const struct flat_guest *guest = view->context;

	if (gpa > guest->size || size > guest->size - gpa)
		return -EFAULT;
	memcpy(to, guest->memory + gpa, size);
	reads++;
	return 0;
}

/* Slow, as in another process, where each read is a system call. */
static void count_reads(struct names *names)
{
	struct flat_guest *guest = &names->writer.guest.guest;

	guest->region.hva = NULL;
	guest->view.read = count_read;
	guest->view.context = guest;
	reads = 0;
}

static unsigned int reads_of_a_look(struct names *names)
{
	unsigned int before = reads;

	jit_maps_scan(names->maps, &names->writer.guest.kernel, &names->writer.guest.guest.view,
		      runs, names, names->code);
	return reads - before;
}

/* Its list of processes does not return to its head. */
TEST(jit_maps, searches_are_bounded)
{
	const unsigned int links = 65536;
	unsigned int first;

	FIXTURE(struct names, names, begin_names, end_names);
	user_guest_put(&names.writer.guest, names.writer.task + 32, names.writer.task + 32);
	count_reads(&names);
	for (uint32_t pid = 1; pid <= 8; pid++)
		see_sample_of(&names, pid);
	first = reads_of_a_look(&names);
	CHECK(first >= links && first < 3 * links);
}

TEST(jit_maps, a_process_that_was_not_found_is_not_searched_for_until_it_is_sampled_again)
{
	FIXTURE(struct names, names, begin_names, end_names);
	count_reads(&names);
	see_sample_of(&names, 1);
	CHECK(reads_of_a_look(&names) > 0);
	wait_some();
	CHECK_EQUAL(reads_of_a_look(&names), 0);
}

/* New unknown processes are sampled before each search. */
TEST(jit_maps, processes_that_are_not_found_do_not_block)
{
	int tries = 0;

	FIXTURE(struct names, names, begin_names, end_names);
	write_text(&names.writer, "1000 10 one\n");
	while (!jit_code_has(names.code, PID) && tries++ < 1000) {
		for (uint32_t pid = 1; pid <= 8; pid++)
			see_sample_of(&names, pid);
		see_sample(&names);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		reads_of_a_look(&names);
	}
	CHECK(jit_code_has(names.code, PID));
}
