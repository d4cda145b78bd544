/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/small_recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/profile_stacks.h"

#define TEXT   0xffffffff81000000ull
#define LEAF   (TEXT + 0x000)
#define MIDDLE (TEXT + 0x100)
#define TOP    (TEXT + 0x200)

static void write_kallsyms(const char *path)
{
	FILE *file = fopen(path, "we");

	REQUIRE(file);
	fprintf(file, "%llx T leaf\n%llx t middle\n%llx t top;with/all\n%llx T end\n", LEAF, MIDDLE,
		TOP, TEXT + 0x300);
	fclose(file);
}

static void write_sample(struct perf_data_writer *writer, uint32_t vcpu, const uint64_t *chain,
			 size_t depth)
{
	struct sample *sample = calloc(1, sample_size(depth));

	REQUIRE(sample);
	sample->time = 1000;
	sample->period = SMALL_PERIOD;
	sample->vcpu = vcpu;
	sample->host_tid = 100 + vcpu;
	sample->pid = 100;
	sample->cgroup = vcpu ? 0 : 42; /* the other's is unknown */
	sample->tid = sample->host_tid;
	sample->kernel_depth = (uint16_t)depth;
	memcpy(sample->callchain, chain, depth * sizeof(*chain));
	sample->rip = chain[0];
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	free(sample);
}

static void write_samples(struct perf_data_writer *writer)
{
	for (unsigned int i = 0; i < 6; i++)
		write_sample(writer, 0, (uint64_t[]){ LEAF + i, MIDDLE + 8, MIDDLE + 16 }, 3);
	for (unsigned int i = 0; i < 3; i++)
		write_sample(writer, 0, (uint64_t[]){ LEAF + 4, TOP + 8 }, 2);
	write_sample(writer, 1, (uint64_t[]){ LEAF + 4, TOP + 8 }, 2);
}

void small_recording_make(struct small_recording *recording)
{
	static unsigned int number;
	struct perf_data_options options = {
		.path = recording->path,
		.frequency = 1000,
		.callchains = true,
		.vcpus = 2,
		.vmm_pid = 100,
		.command_line = "test",
		.release = "6.1.0",
	};
	struct perf_data_writer *writer;

	snprintf(recording->path, sizeof(recording->path), "build/small-%d-%u.data", getpid(),
		 number);
	snprintf(recording->kallsyms, sizeof(recording->kallsyms), "build/small-%d-%u.kallsyms",
		 getpid(), number++);
	write_kallsyms(recording->kallsyms);
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, 100, 100, "vcpu 0"), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, 100, 101, "vcpu;1"), 0);
	CHECK_EQUAL(perf_data_writer_cgroup(writer, 0, 42, "/system.slice/a;b.service"), 0);
	write_samples(writer);
	CHECK_EQUAL(perf_data_writer_lost(writer, 1000, 0, 3), 0);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

void small_recording_free(struct small_recording *recording)
{
	unlink(recording->path);
	unlink(recording->kallsyms);
}

int small_recording_export(int (*write)(const struct profile *profile, FILE *to), FILE *to)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1, .samples = true };
	struct profile *profile = NULL;
	int error;

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	CHECK_EQUAL(profile_load(&profile, &options), 0);
	error = write(profile, to);
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);
	return error;
}
