/* SPDX-License-Identifier: Apache-2.0 */
/* The host's call chains, from the writer to the profile, in both perspectives. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/profile_stacks.h"

#define HOST_KERNEL  0xffffffffa0001000ull
#define HOST_MODULE  0xffffffffc0001000ull
#define VMM_CODE     0x401000ull /* the guest's program has the same address */
#define GUEST_KERNEL 0xffffffff81001000ull
#define GUEST_CODE   0x401000ull

/* In KVM_RUN, where the guest was in a system call of a program. */
static void write_sample(struct perf_data_writer *writer, uint8_t flags, const char *reason)
{
	struct sample *sample = calloc(1, SAMPLE_LENGTH_MAX);
	uint64_t *host;

	REQUIRE(sample);
	sample->time = 1000;
	sample->period = 1000000;
	sample->flags = flags;
	sample->pid = sample->tid = 100;
	sample->rip = sample->callchain[0] = GUEST_KERNEL;
	sample->callchain[1] = GUEST_CODE;
	sample->kernel_depth = sample->user_depth = 1;
	sample->host_kernel = 2;
	sample->host_user = 1;
	if (flags & SAMPLE_OUTSIDE)
		snprintf(sample_write_outside(sample)->reason, sizeof(struct sample_outside), "%s",
			 reason);
	host = sample_write_host_chain(sample);
	host[0] = HOST_MODULE;
	host[1] = HOST_KERNEL;
	host[2] = VMM_CODE;
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	free(sample);
}

static void write_guest_mapping(struct perf_data_writer *writer)
{
	const struct perf_data_mapping mapping = {
		.pid = 100, .tid = 100, .start = 0x400000, .size = 0x10000, .name = "/bin/in_guest"
	};

	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
}

static void write_recording(const char *path, enum perspective perspective)
{
	bool kernel = perspective == PERSPECTIVE_HOST;
	int32_t pid = perspective == PERSPECTIVE_HOST ? 4711 : PERF_DATA_HOST_PID;
	const struct perf_data_mapping host[] = {
		{ .pid = kernel ? -1 : pid,
		  .start = 0xffffffffa0000000,
		  .size = 0x2000000,
		  .kernel = kernel,
		  .host = true,
		  .name = kernel ? "[kernel.kallsyms]_text" : "[host.kernel.kallsyms]_text" },
		{ .pid = kernel ? -1 : pid,
		  .start = 0xffffffffc0000000,
		  .size = 0x10000,
		  .kernel = kernel,
		  .host = true,
		  .name = kernel ? "[kvm_example]" : "[host.kvm_example]" },
		{ .pid = pid,
		  .tid = pid,
		  .start = 0x400000,
		  .size = 0x10000,
		  .host = true,
		  .name = kernel ? "/bin/vmm" : "[host]/bin/vmm" },
	};
	const struct perf_data_options options = { .path = path,
						   .perspective = perspective,
						   .frequency = 1000,
						   .callchains = true,
						   .vcpus = 1,
						   .vmm_pid = 4711,
						   .host_samples = true,
						   .host_stacks = true,
						   .host = host,
						   .host_count = 3,
						   .command_line = "test" };
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	write_guest_mapping(writer);
	write_sample(writer, SAMPLE_OUTSIDE, "exit npf");
	write_sample(writer, 0, NULL);
	write_sample(writer, 0, NULL);
	write_sample(writer, SAMPLE_OTHER_KERNEL, NULL);
	write_sample(writer, SAMPLE_OTHER_KERNEL, NULL);
	write_sample(writer, SAMPLE_OTHER_KERNEL, NULL);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

/* The images, or symbols, of the stack with that number of samples, from the root; "" without. */
static void describe(const struct profile *profile, uint64_t samples, char *text, size_t size)
{
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		for (size_t j = stack->depth; stack->samples == samples && j > 0; j--) {
			const struct profile_frame *frame = stack->frames[j - 1];

			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ";" : "",
						 frame->symbol ? frame->symbol : frame->image);
		}
	}
}

static void check_stacks(const char *path, const char *const *expected)
{
	const struct profile_options options = { .input = path,
						 .vcpu = -1,
						 .sources.buildid_dir = "build/none" };
	struct profile *profile;
	char text[256];

	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (uint64_t samples = 1; samples <= 3; samples++) {
		describe(profile, samples, text, sizeof(text));
		if (strcmp(text, expected[samples - 1]) != 0)
			FAIL_TEST("%s instead of %s", text, expected[samples - 1]);
	}
	profile_free(profile);
}

TEST(host_stacks, host_frames_follow_the_frames_of_the_guest)
{
	static const char *const expected[] = {
		"in_guest;[unknown];[exit npf];vmm;[host.kernel.kallsyms];[kvm_example]",
		"in_guest;[unknown];vmm;[host.kernel.kallsyms];[kvm_example]",
		"vmm;[host.kernel.kallsyms];[kvm_example]",
	};
	char path[64];

	snprintf(path, sizeof(path), "build/host-stacks-%d.data", getpid());
	write_recording(path, PERSPECTIVE_GUEST);
	check_stacks(path, expected);
	unlink(path);
}

/* A call chain of perf is of one machine. */
TEST(host_stacks, host_perspective_has_the_host_part)
{
	static const char *const expected[] = {
		"[exit npf];vmm;[kernel.kallsyms];[kvm_example]",
		"",
		"",
	};
	char path[64];

	snprintf(path, sizeof(path), "build/host-stacks-%d.data", getpid());
	write_recording(path, PERSPECTIVE_HOST);
	check_stacks(path, expected);
	unlink(path);
}

struct records {
	size_t samples, mappings;
	struct perf_data_sample first;
	uint64_t chain[16];
	uint16_t mapping_misc[8];
};

static int note_sample(void *context, const struct perf_data_sample *sample)
{
	struct records *records = context;

	if (!records->samples++ && sample->callchain_size <= 16) {
		records->first = *sample;
		memcpy(records->chain, sample->callchain,
		       sample->callchain_size * sizeof(uint64_t));
	}
	return 0;
}

static int note_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct records *records = context;

	if (records->mappings < 8)
		records->mapping_misc[records->mappings++] = mapping->misc;
	return 0;
}

static void read_records(const char *path, struct records *records)
{
	const struct perf_data_events events = { .sample = note_sample,
						 .mapping = note_mapping,
						 .context = records };
	struct perf_data_reader *reader;

	*records = (struct records){ 0 };
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	REQUIRE_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

TEST(host_stacks, records_are_marked_as_perf_marks_them)
{
	static const uint64_t host[] = { (uint64_t)PERF_CONTEXT_KERNEL, HOST_MODULE, HOST_KERNEL,
					 (uint64_t)PERF_CONTEXT_USER, VMM_CODE };
	static const uint64_t guest[] = {
		(uint64_t)PERF_CONTEXT_HV,
		HOST_MODULE,
		HOST_KERNEL,
		VMM_CODE,
		(uint64_t)PERF_CONTEXT_KERNEL,
		GUEST_KERNEL,
		(uint64_t)PERF_CONTEXT_USER,
		GUEST_CODE,
	};
	struct records records;
	char path[64];

	snprintf(path, sizeof(path), "build/host-stacks-%d.data", getpid());
	write_recording(path, PERSPECTIVE_HOST);
	read_records(path, &records);
	CHECK_EQUAL(records.first.misc, PERF_RECORD_MISC_KERNEL);
	CHECK_EQUAL(records.first.ip, HOST_MODULE);
	CHECK_EQUAL(records.first.pid, 4711);
	REQUIRE_EQUAL(records.first.callchain_size, sizeof(host) / sizeof(host[0]));
	CHECK(!memcmp(records.chain, host, sizeof(host)));
	CHECK_EQUAL(records.mapping_misc[0], PERF_RECORD_MISC_KERNEL);
	CHECK_EQUAL(records.mapping_misc[2], PERF_RECORD_MISC_USER);
	CHECK_EQUAL(records.mapping_misc[3], PERF_RECORD_MISC_GUEST_USER);

	write_recording(path, PERSPECTIVE_GUEST);
	read_records(path, &records);
	unlink(path);
	CHECK_EQUAL(records.first.misc, PERF_RECORD_MISC_HYPERVISOR);
	CHECK_EQUAL(records.first.pid, 100);
	REQUIRE_EQUAL(records.first.callchain_size, sizeof(guest) / sizeof(guest[0]));
	CHECK(!memcmp(records.chain, guest, sizeof(guest)));
	CHECK_EQUAL(records.mapping_misc[0], PERF_RECORD_MISC_HYPERVISOR);
	CHECK_EQUAL(records.mapping_misc[3], PERF_RECORD_MISC_USER);
}
