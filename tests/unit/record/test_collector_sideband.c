/* SPDX-License-Identifier: Apache-2.0 */
/* From the rings through the collector into a file, and out of it again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/sideband_guest.h"
#include "tests/unit/user_guest.h"
#include "vmm/guest/linux/vma.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/record/collector_kernel_parts.h"
#include "vmm/record/collector_output.h"
#include "vmm/report/symbolizer.h"
#include "vmm/resolve/resolver_decision.h"

struct reading {
	size_t samples;
	uint64_t last_time;
};

static int check_sample(void *context, const struct symbolized_sample *sample)
{
	struct reading *reading = context;
	const struct sideband_guest_sample *right = &sideband_guest_samples[reading->samples++];

	if (reading->samples > sideband_guest_count ||
	    sample->depth != (reading->samples > SIDEBAND_GUEST_UNSURE ? 1 : 2))
		return -EINVAL;
	CHECK_EQUAL(sample->recorded->pid, right->pid);
	CHECK_STRING(sample->comm, right->comm);
	CHECK_STRING(sample->frames[0].frame->image, right->image);
	CHECK_STRING(sample->frames[sample->depth - 1].frame->image, right->image);
	CHECK(sample->recorded->time > reading->last_time);
	reading->last_time = sample->recorded->time;
	return 0;
}

static void make_path(char path[64])
{
	int fd;

	strcpy(path, "/tmp/kvmscope-test-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		abort();
	close(fd);
}

TEST(collector, events_of_the_guest_reach_the_file_at_their_place_in_time)
{
	struct collector_statistics statistics;
	struct symbolizer *resolver;
	struct reading reading = { 0 };
	char path[64];

	make_path(path);
	REQUIRE_EQUAL(sideband_guest_record(path, PERSPECTIVE_GUEST, &statistics), 0);
	REQUIRE_EQUAL(
		symbolizer_open(&resolver, &(struct profile_options){ .input = path, .vcpu = -1 }),
		0);
	CHECK_EQUAL(symbolizer_run(resolver, check_sample, &reading), 0);
	CHECK_EQUAL(reading.samples, sideband_guest_count);
	CHECK_EQUAL(statistics.losses.counts[LOSS_NO_MAPPING], 3);
	CHECK_EQUAL(statistics.losses.counts[LOSS_UNCERTAIN], 2);
	CHECK_EQUAL(statistics.losses.counts[LOSS_NO_ADDRESS_SPACE], 1);
	CHECK(!memcmp(&symbolizer_summary(resolver)->losses, &statistics.losses,
		      sizeof(statistics.losses)));
	symbolizer_close(resolver);
	unlink(path);
}

TEST(flight, events_of_the_guest_are_in_the_file)
{
	struct symbolizer *resolver;
	struct reading reading = { 0 };
	char path[64];

	make_path(path);
	REQUIRE_EQUAL(sideband_guest_flight(path), 0);
	REQUIRE_EQUAL(
		symbolizer_open(&resolver, &(struct profile_options){ .input = path, .vcpu = -1 }),
		0);
	CHECK_EQUAL(symbolizer_run(resolver, check_sample, &reading), 0);
	CHECK_EQUAL(reading.samples, sideband_guest_count);
	CHECK_EQUAL(symbolizer_summary(resolver)->losses.counts[LOSS_NO_MAPPING], 3);
	CHECK_EQUAL(symbolizer_summary(resolver)->losses.counts[LOSS_UNCERTAIN], 2);
	CHECK_EQUAL(symbolizer_summary(resolver)->flight.count, 1);
	symbolizer_close(resolver);
	unlink(path);
}

static int count_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	++*(size_t *)context;
	return 0;
}

/* Its samples are the VMM's: the guest's processes would be other ones of the same numbers. */
TEST(collector, the_hosts_perspective_has_no_processes_of_the_guest)
{
	struct perf_data_reader *reader;
	size_t mappings = 0;
	char path[64];

	make_path(path);
	REQUIRE_EQUAL(sideband_guest_record(path, PERSPECTIVE_HOST, NULL), 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(
		perf_data_reader_run(reader, &(struct perf_data_events){ .mapping = count_mapping,
									 .context = &mappings }),
		0);
	CHECK_EQUAL(mappings, 0);
	perf_data_reader_close(reader);
	unlink(path);
}

static int note_comm(void *context, const struct symbolized_sample *sample)
{
	strcat(context, *sample->comm ? sample->comm : "none ");
	return 0;
}

static void open_output(struct collector_output *output, char path[64])
{
	make_path(path);
	REQUIRE_EQUAL(collector_output_open(
			      output,
			      &(struct perf_data_options){
				      .path = path, .frequency = 1000, .vcpus = 1, .vmm_pid = 77 },
			      NULL),
		      0);
}

static void put_sample(struct collector_output *output, uint64_t time, uint32_t pid,
		       const char *comm)
{
	struct sample sample = { .time = time, .pid = pid, .tid = pid, .cpl = 3 };

	strcpy(sample.comm, comm);
	CHECK_EQUAL(collector_output_sample(
			    output, &(struct attributed_sample){ .sample = &sample }, NULL, NULL),
		    0);
}

/* 60 is a child of 61. */
static void put_fork(struct collector_output *output)
{
	const struct sideband_fork fork = {
		.head = sideband_head(SIDEBAND_FORK, sizeof(fork), 20, 60),
		.parent_pid = 61,
		.parent_tid = 61,
	};

	CHECK_EQUAL(file_state_sideband(output->state, &fork.head), 0);
}

static void check_comms(struct collector_output *output, const char *path, const char *expected)
{
	struct symbolizer *resolver;
	char comms[64] = "";

	CHECK_EQUAL(collector_output_close(output), 0);
	REQUIRE_EQUAL(
		symbolizer_open(&resolver, &(struct profile_options){ .input = path, .vcpu = -1 }),
		0);
	CHECK_EQUAL(symbolizer_run(resolver, note_comm, comms), 0);
	CHECK_STRING(comms, expected);
	symbolizer_close(resolver);
	unlink(path);
}

/* Readers give a new process its parent's name, so an earlier valid name is recorded again. */
TEST(collector, a_process_id_that_comes_back_has_its_own_name)
{
	struct collector_output output;
	char path[64];

	open_output(&output, path);
	put_sample(&output, 10, 60, "own ");
	put_sample(&output, 11, 61, "parent ");
	put_fork(&output);
	put_sample(&output, 30, 60, "own ");
	check_comms(&output, path, "own parent own ");
}

/* The file has the name of its parent, which was reported before a loss. */
TEST(collector, a_child_of_a_process_with_an_uncertain_name_has_none)
{
	const struct sideband_comm comm = {
		.head = sideband_head(SIDEBAND_COMM, sizeof(comm), 10, 61),
		.comm = "parent ",
	};
	struct collector_output output;
	char path[64];

	open_output(&output, path);
	CHECK_EQUAL(file_state_sideband(output.state, &comm.head), 0);
	put_fork(&output);
	put_sample(&output, 90, 60, "");
	put_sample(&output, 91, 61, "");
	check_comms(&output, path, "none none ");
}

/* A file whose writer was killed, and one that went through a pipe, have no sections: rounds have
 * the counts.
 */
TEST(collector, losses_are_in_a_file_that_was_never_closed)
{
	struct perf_data_options options = { .frequency = 1000, .vcpus = 1, .vmm_pid = 77 };
	struct losses losses = { .counts = { [LOSS_NO_MAPPING] = 5, [LOSS_SIDEBAND_LATE] = 7 } };
	struct perf_data_reader *reader;
	struct perf_data_writer *writer;
	char path[64];

	make_path(path);
	options.path = path;
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	perf_data_writer_set_losses(writer, &losses);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	losses.counts[LOSS_SIDEBAND_LATE] = 8;
	perf_data_writer_set_losses(writer, &losses);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ 0 }), 0);
	CHECK(perf_data_reader_summary(reader)->cut_off);
	CHECK(!memcmp(&perf_data_reader_summary(reader)->losses, &losses, sizeof(losses)));
	perf_data_reader_close(reader);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	unlink(path);
}

static bool no_registers(void *context, struct guest_registers *registers)
{
	return false;
}

static bool push_sideband(struct ring *ring, const struct sideband *record)
{
	void *to = ring_reserve(ring, RECORD_SIDEBAND, record->size);

	if (to)
		memcpy(to, record, record->size);
	ring_commit(ring, to);
	return to;
}

/* At TIME: what runs in process 60, and of others more than the ring has room for, COUNT records.
 */
static void overfill(struct ring *ring, uint64_t time, uint64_t count)
{
	struct {
		struct sideband_mmap mmap;
		char name[16];
	} mapping = { .mmap = { .head = sideband_head(SIDEBAND_MMAP, sizeof(mapping), time, 60),
				.start = SIDEBAND_GUEST_CODE,
				.length = 0x1000,
				.prot = PROT_READ | PROT_EXEC },
		      .name = "/bin/early" };
	struct sideband_comm other = { .head = sideband_head(SIDEBAND_COMM, sizeof(other), time,
							     61) };

	CHECK(push_sideband(ring, &mapping.mmap.head));
	while (push_sideband(ring, &other.head))
		;
	while (--count)
		CHECK(!push_sideband(ring, &other.head));
	ring_flush(ring);
}

/* Process 60 may run another program by now. */
TEST(collector, reports_from_before_a_loss_of_the_ring_are_stale)
{
	struct ring *samples, *sideband;
	struct guest_view nothing = { 0 };
	struct collector_statistics statistics;
	struct collector *collector;
	struct sample *sample;
	struct timespec now;
	char path[64];
	uint64_t time;
	struct collector_options options = {
		.rings = &samples,
		.ring_count = 1,
		.sideband_rings = &sideband,
		.sideband_ring_count = 1,
		.view = &nothing,
		.registers = no_registers,
		.output = { .path = path, .frequency = 1000, .vcpus = 1, .vmm_pid = 77 },
	};

	make_path(path);
	REQUIRE_EQUAL(ring_create(&samples, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(ring_create(&sideband, RING_SIZE_MIN), 0);
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	overfill(sideband, time, 3);
	sample = ring_reserve(samples, RECORD_SAMPLE, sample_size(0));
	*sample = (struct sample){ .time = time + 1,
				   .period = 1000,
				   .rip = SIDEBAND_GUEST_CODE,
				   .cpl = 3,
				   .pid = 60,
				   .tid = 60 };
	ring_commit(samples, sample);
	ring_flush(samples);
	REQUIRE_EQUAL(collector_start(&collector, &options), 0);
	CHECK_EQUAL(collector_stop(collector, &statistics), 0);
	CHECK_EQUAL(statistics.losses.counts[LOSS_SIDEBAND_DROPPED], 3);
	CHECK_EQUAL(statistics.losses.counts[LOSS_NO_MAPPING], 1);
	ring_destroy(samples);
	ring_destroy(sideband);
	unlink(path);
}

static void note_filled(void *context, const struct sideband_mmap *mapping)
{
	CHECK_EQUAL(mapping->start, SIDEBAND_GUEST_CODE);
	CHECK(mapping->prot & PROT_EXEC);
	strcat(context, mapping->name);
}

/* A sample in process 60 at TIME that carries its own mapping. */
static void write_knowing(struct collector_output *output, struct image_catalog *catalog,
			  const struct guest_kernel *kernel, const struct user_mapping *mapping,
			  uint64_t time)
{
	static const struct resolver_processes none;
	const struct resolver_evidence evidence = { .processes = &none,
						    .images = catalog,
						    .reported_until = UINT64_MAX };
	struct resolver_mapping user[SAMPLE_CALLCHAIN_MAX];
	struct attributed_sample attributed;
	struct losses losses;
	union {
		struct sample sample;
		uint8_t bytes[sizeof(struct sample) + sizeof(uint64_t) +
			      sizeof(struct sample_mapping)];
	} record = { .sample = { .time = time,
				 .rip = SIDEBAND_GUEST_CODE,
				 .cpl = 3,
				 .pid = 60,
				 .tid = 60,
				 .user_depth = 1,
				 .mappings = 1 } };

	record.sample.callchain[0] = record.sample.rip;
	*sample_write_mappings(&record.sample) =
		(struct sample_mapping){ .start = mapping->start,
					 .end = mapping->end,
					 .offset = mapping->offset,
					 .image = user_image_number(mapping->image),
					 .images = user_images_generation(kernel->images),
					 .flags = PROT_READ | PROT_EXEC };
	collector_user_add_images(catalog, kernel->images);
	attributed = resolver_decide(&evidence, &record.sample, user, &losses);
	CHECK_EQUAL(collector_output_sample(output, &attributed, kernel, NULL), 0);
}

/* NULL: none. Always freed with user_guest_free(). */
static const struct user_mapping *map_program(struct user_guest *guest)
{
	const struct user_mapping *mapping;

	user_guest_make(guest, true);
	user_guest_map(guest, SIDEBAND_GUEST_CODE, SIDEBAND_GUEST_CODE + 0x4000, 0,
		       VMA_READ | VMA_EXEC,
		       user_guest_file(guest, guest->root_mount,
				       user_guest_dentry(guest, guest->root, "program"), 1));
	user_guest_build(guest);
	mapping = user_guest_lookup(guest, SIDEBAND_GUEST_CODE);
	user_images_load(guest->kernel.images, &guest->kernel, &guest->guest.view);
	return mapping && mapping->image ? mapping : NULL;
}

/* Programs whose start was lost are reported by the samples, so that their symbols are requested.
 */
TEST(collector, carried_mappings_are_passed_on_like_reported_ones)
{
	struct perf_data_options options = { .frequency = 1000, .vcpus = 1, .vmm_pid = 77 };
	struct {
		struct sideband_mmap mmap;
		char name[16];
	} other = { .mmap = { .head = sideband_head(SIDEBAND_MMAP, sizeof(other), 10, 61),
			      .start = SIDEBAND_GUEST_CODE,
			      .length = 0x1000,
			      .prot = PROT_READ | PROT_EXEC },
		    .name = "/bin/other" };
	const struct user_mapping *mapping;
	struct image_catalog catalog = { .count = 0 };
	char path[64], filled[64] = "";
	const struct collector_output_options output_options = { .images = &catalog,
								 .mapped = note_filled,
								 .context = filled };
	struct collector_output output;
	struct user_guest guest;

	mapping = map_program(&guest);
	REQUIRE(mapping != NULL);
	make_path(path);
	options.path = path;
	REQUIRE_EQUAL(collector_output_open(&output, &options, &output_options), 0);
	CHECK_EQUAL(file_state_sideband(output.state, &other.mmap.head), 0);
	write_knowing(&output, &catalog, &guest.kernel, mapping, 20);
	CHECK_STRING(filled, "/program");
	CHECK_EQUAL(collector_output_close(&output), 0);
	image_catalog_free(&catalog);
	user_guest_free(&guest);
	unlink(path);
}

/* The mapping records of a file, in its order. */
struct mapping_list {
	char text[256];
	size_t length;
};

static int note_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct mapping_list *list = context;

	list->length += (size_t)snprintf(list->text + list->length,
					 sizeof(list->text) - list->length, "%s %llx at %llu\n",
					 mapping->name, (unsigned long long)mapping->start,
					 (unsigned long long)mapping->time);
	return 0;
}

static void check_mappings(const char *path, const char *expected)
{
	struct perf_data_reader *reader;
	struct mapping_list list = { 0 };

	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(
		perf_data_reader_run(reader, &(struct perf_data_events){ .mapping = note_mapping,
									 .context = &list }),
		0);
	CHECK_STRING(list.text, expected);
	perf_data_reader_close(reader);
}

/* Process 60 is reported, after samples at 20 and 30, to have mapped other files at times that may
 * be wrong. */
static void write_late(const char *path, uint32_t error)
{
	struct perf_data_options options = {
		.path = path, .frequency = 1000, .vcpus = 1, .vmm_pid = 77
	};
	struct {
		struct sideband_mmap mmap;
		char name[16];
	} other = { .mmap = { .head = { .size = sizeof(other),
					.type = SIDEBAND_MMAP,
					.time = 25,
					.time_error = error,
					.pid = 60,
					.tid = 60 },
			      .start = SIDEBAND_GUEST_CODE,
			      .length = 0x1000,
			      .prot = PROT_READ | PROT_EXEC },
		    .name = "/bin/other" };
	struct image_catalog catalog = { .count = 0 };
	const struct collector_output_options output_options = { .images = &catalog };
	struct collector_output output;
	struct user_guest guest;
	const struct user_mapping *mapping = map_program(&guest);

	REQUIRE(mapping != NULL);
	REQUIRE_EQUAL(collector_output_open(&output, &options, &output_options), 0);
	write_knowing(&output, &catalog, &guest.kernel, mapping, 20);
	write_knowing(&output, &catalog, &guest.kernel, mapping, 30);
	CHECK_EQUAL(file_state_sideband(output.state, &other.mmap.head), 0);
	other.mmap.head.time = 10;
	other.mmap.start += 0x2000;
	CHECK_EQUAL(file_state_sideband(output.state, &other.mmap.head), 0);
	CHECK_EQUAL(collector_output_close(&output), 0);
	image_catalog_free(&catalog);
	user_guest_free(&guest);
}

TEST(collector, late_reports_do_not_change_samples_with_carried_mappings)
{
	char path[64];

	make_path(path);
	write_late(path, 1);
	check_mappings(path, "/program 55550000 at 20\n"
			     "/bin/other 55550000 at 31\n"
			     "/bin/other 55552000 at 31\n"
			     "/program 55552000 at 31\n");
	write_late(path, 0);
	check_mappings(path, "/program 55550000 at 20\n"
			     "/bin/other 55550000 at 25\n"
			     "/bin/other 55552000 at 10\n");
	unlink(path);
}

/* A sample of process 60 at an address that nothing is known of. */
static void write_unknown(const char *path, size_t sideband_rings)
{
	const struct perf_data_options file = {
		.path = path, .frequency = 1000, .vcpus = 1, .vmm_pid = 77
	};
	const struct collector_options options = { .sideband_ring_count = sideband_rings };
	const struct collector_kernel kernel = { .options = &options };
	const struct collector_output_options output_options = collector_output_options(&kernel);
	struct sample sample = { .time = 20,
				 .period = 1,
				 .pid = 60,
				 .tid = 60,
				 .cpl = 3,
				 .rip = SIDEBAND_GUEST_CODE,
				 .comm = "program" };
	const struct attributed_sample attributed = { .sample = &sample };
	struct collector_output output;

	REQUIRE_EQUAL(collector_output_open(&output, &file, &output_options), 0);
	CHECK_EQUAL(collector_output_sample(&output, &attributed, NULL, NULL), 0);
	CHECK_EQUAL(collector_output_close(&output), 0);
}

/* A later report of an earlier mapping must not name the address. */
TEST(collector, unknown_addresses_are_left_open_before_the_first_report)
{
	char path[64];

	make_path(path);
	write_unknown(path, 0);
	check_mappings(path, "");
	write_unknown(path, 1);
	check_mappings(path, "[unknown] 55550000 at 20\n");
	unlink(path);
}
