/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/symbolizer_state.h"

#define BUILDS 4000u

/* BUILDS mappings of one name, as a guest makes them that replaces a file or loads modules. */
static void write_builds(const char *path, const char *name, bool kernel)
{
	const struct perf_data_options options = {
		.path = path, .frequency = 99, .vcpus = 1, .command_line = "kvmscope"
	};
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	for (uint32_t i = 0; i < BUILDS; i++) {
		uint8_t build_id[20] = { 0 };
		const struct perf_data_mapping mapping = {
			.time = i,
			.pid = kernel ? -1 : 7,
			.tid = kernel ? -1 : 7,
			.start = (kernel ? 0xffffffffc0000000 : 0x10000) + 0x1000ull * i,
			.size = 0x1000,
			.name = name,
			.build_id = build_id,
			.build_id_size = sizeof(build_id),
			.kernel = kernel,
		};

		memcpy(build_id + 8, &i, sizeof(i));
		CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
	}
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

static int compare_hashes(const void *left, const void *right)
{
	const struct hash_table_slot *a = left, *b = right;

	return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* The number of images that share their hash with another, with which they are compared. */
static size_t count_collisions(struct hash_table *images)
{
	size_t collisions = 0;

	qsort(images->slots, images->capacity, sizeof(images->slots[0]), compare_hashes);
	for (size_t i = 1; i < images->capacity; i++)
		collisions += images->slots[i].item && images->slots[i - 1].item &&
			      images->slots[i].hash == images->slots[i - 1].hash;
	return collisions;
}

static void check_builds(const char *name, bool kernel)
{
	struct symbolizer *symbolizer;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/kvmscope-builds-%d", (int)getpid());
	write_builds(path, name, kernel);
	REQUIRE_EQUAL(symbolizer_open(&symbolizer,
				      &(struct profile_options){ .input = path, .vcpu = -1 }),
		      0);
	CHECK_EQUAL(symbolizer->images.count, BUILDS);
	CHECK_EQUAL(count_collisions(&symbolizer->images), 0);
	symbolizer_close(symbolizer);
	unlink(path);
}

TEST(symbolizer, files_of_one_name_have_a_hash_per_build)
{
	check_builds("/usr/bin/replaced", false);
}

/* Of all builds, the kernel has only the latest module of a name. */
TEST(symbolizer, modules_of_one_name_are_one_module_of_the_kernel)
{
	struct symbolizer *symbolizer;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/kvmscope-modules-%d", (int)getpid());
	write_builds(path, "[reloaded]", true);
	REQUIRE_EQUAL(symbolizer_open(&symbolizer,
				      &(struct profile_options){ .input = path, .vcpu = -1 }),
		      0);
	CHECK_EQUAL(symbolizer->kernels[0].modules.count, 1);
	CHECK_EQUAL(profile_kernel_module(&symbolizer->kernels[0], "reloaded")->start,
		    0xffffffffc0000000 + 0x1000ull * (BUILDS - 1));
	symbolizer_close(symbolizer);
	unlink(path);
}

TEST(symbolizer, modules_of_one_name_have_a_hash_per_build)
{
	check_builds("[reloaded]", true);
}

/* Neither limit depends on how the file is made: a fraction of its records is read. */
TEST(symbolizer, loading_has_a_limit_and_can_be_canceled)
{
	const atomic_bool canceled = true;
	struct symbolizer *symbolizer;
	struct profile_options options = { .vcpu = -1 };
	char path[64];

	snprintf(path, sizeof(path), "/tmp/kvmscope-limit-%d", (int)getpid());
	write_builds(path, "/usr/bin/replaced", false);
	options.input = path;
	options.cpu_limit = 1;
	CHECK_EQUAL(symbolizer_open(&symbolizer, &options), -ETIME);
	options.cpu_limit = 0;
	options.cancel = &canceled;
	CHECK_EQUAL(symbolizer_open(&symbolizer, &options), -ECANCELED);
	unlink(path);
}
