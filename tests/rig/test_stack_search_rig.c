/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for RSP against the truth: samples of Debian's kernels on kvm_amd, where RSP is known,
 * are searched with RSP hidden. No chain may be wrong.
 *
 * KVMSCOPE_HIDDEN_RSP_SAMPLES is the number of samples of each kernel. KVMSCOPE_HIDDEN_RSP_FILES is
 * a list of files that the recorder has written before, for a third test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/sample_record.h"
#include "tests/rig/hidden_rsp.h"
#include "tests/rig/rig.h"
#include "vmm/attach/sample_views.h"
#include "vmm/guest/linux/guest_kernel.h"

#define SAMPLES   "1500"
#define REGIONS   8
#define FILE_NAME "build/rig/hidden-rsp-%s"

struct recording {
	FILE *file;
	struct guest_region regions[REGIONS];
	uint8_t *bytes[REGIONS]; /* of the regions; owned */
	struct guest_view memory;
	struct guest_kernel *kernel;
	struct stack_search *search;
	struct hidden_rsp_sample sample;
	uint8_t stacks[STACK_SEARCH_STACKS][HIDDEN_RSP_STACK_MAX];
	struct stack_search_result result;
	uint64_t samples, whole, cut, none, wrong, steps, most_steps;
	uint64_t frames, true_frames;
};

static bool read_stack(struct recording *recording, uint8_t *to)
{
	uint16_t at;

	memset(to, 0, HIDDEN_RSP_STACK_MAX);
	while (fread(&at, sizeof(at), 1, recording->file) == 1) {
		if (at == UINT16_MAX)
			return true;
		if (at > HIDDEN_RSP_STACK_MAX - HIDDEN_RSP_LINE ||
		    fread(to + at, HIDDEN_RSP_LINE, 1, recording->file) != 1)
			return false;
	}
	return false;
}

/* False: at the end. */
static bool read_sample(struct recording *recording)
{
	struct hidden_rsp_sample *sample = &recording->sample;

	if (fread(sample, sizeof(*sample), 1, recording->file) != 1 || !sample->stack_count ||
	    sample->stack_count > STACK_SEARCH_STACKS || sample->depth > HIDDEN_RSP_DEPTH)
		return false;
	for (unsigned int i = 0; i < sample->stack_count; i++)
		if (!read_stack(recording, recording->stacks[i]))
			return false;
	return true;
}

static bool read_range(struct recording *recording)
{
	struct guest_view *memory = &recording->memory;
	uint64_t range[2];
	uint8_t *bytes;

	if (fread(range, sizeof(range), 1, recording->file) != 1)
		return false;
	bytes = recording->bytes[memory->region_count] = malloc(range[1]);
	recording->regions[memory->region_count++] =
		(struct guest_region){ range[0], range[1], bytes };
	return bytes && fread(bytes, range[1], 1, recording->file) == 1;
}

static bool read_memory(struct recording *recording)
{
	struct hidden_rsp_sample first;
	uint64_t ranges;

	recording->memory.regions = recording->regions;
	if (fread(&first, sizeof(first), 1, recording->file) != 1 ||
	    fread(&ranges, sizeof(ranges), 1, recording->file) != 1 || ranges > REGIONS)
		return false;
	while (ranges--)
		if (!read_range(recording))
			return false;
	return !guest_kernel_find(&recording->kernel, &recording->memory, &first.registers);
}

static bool open_recording(struct recording *recording, const char *path)
{
	memset(recording, 0, sizeof(*recording));
	recording->file = fopen(path, "r");
	if (!recording->file || !read_memory(recording))
		return false;
	recording->search = stack_search_new(recording->kernel->symbols, &recording->memory,
					     &recording->kernel->paging);
	return recording->search != NULL;
}

static void close_recording(struct recording *recording)
{
	stack_search_free(recording->search);
	guest_kernel_free(recording->kernel);
	for (size_t i = 0; i < recording->memory.region_count; i++)
		free(recording->bytes[i]);
	if (recording->file)
		fclose(recording->file);
}

/* Reads the stacks from the copies, as attach does. */
static void search(struct recording *recording)
{
	const struct hidden_rsp_sample *sample = &recording->sample;
	struct attach_guest_state state = { .registers = sample->registers };
	struct stack_view copies;
	struct stack_search_input input = { .orc = recording->kernel->orc,
					    .view = &copies.view,
					    .registers = &state.registers,
					    .stack_count = sample->stack_count };

	memcpy(input.stacks, sample->stacks, sizeof(input.stacks));
	for (unsigned int i = 0; i < sample->stack_count; i++)
		state.stacks[i] = (struct attach_stack){ .gva = sample->stacks[i].start,
							 .size = HIDDEN_RSP_STACK_MAX,
							 .bytes = recording->stacks[i] };
	state.registers.rsp = 0;
	stack_view_init(&copies, &recording->memory, recording->kernel, &state);
	stack_search_run(recording->search, &input, &recording->result);
}

static void show(const struct recording *recording, const char *what, const uint64_t *addresses,
		 size_t count)
{
	struct symbol symbol;

	printf("%s:", what);
	for (size_t i = 0; i < count; i++)
		if (symbols_find(recording->kernel->symbols, addresses[i], &symbol))
			printf(" %s+%llx", symbol.name,
			       (unsigned long long)(addresses[i] - symbol.start));
		else
			printf(" %llx", (unsigned long long)addresses[i]);
	printf("\n");
}

/* The truth may itself be cut, but what it has is right. */
static bool is_right(const struct recording *recording)
{
	const struct hidden_rsp_sample *truth = &recording->sample;
	const struct stack_search_result *result = &recording->result;
	bool cut = truth->flags & SAMPLE_KERNEL_TRUNCATED;

	for (unsigned int i = 0; i < result->depth; i++) {
		if (i >= truth->depth)
			return cut;
		if (result->addresses[i] != truth->addresses[i])
			return false;
	}
	return !result->whole || cut || result->depth == truth->depth;
}

static void count(struct recording *recording)
{
	const struct stack_search_result *result = &recording->result;

	recording->samples++;
	recording->steps += result->steps;
	if (result->steps > recording->most_steps)
		recording->most_steps = result->steps;
	recording->frames += result->depth;
	recording->true_frames += recording->sample.depth;
	if (!is_right(recording)) {
		recording->wrong++;
		show(recording, "wrong", result->addresses, result->depth);
		show(recording, "truth", recording->sample.addresses, recording->sample.depth);
	} else if (!result->candidates)
		recording->none++;
	else if (result->whole)
		recording->whole++;
	else
		recording->cut++;
}

static void check_file(const char *path)
{
	static struct recording recording;

	if (!open_recording(&recording, path))
		FAIL_TEST("%s is not a recording", path);
	while (recording.search && read_sample(&recording)) {
		search(&recording);
		count(&recording);
	}
	printf("%s: of %llu samples, %llu chains are whole, %llu cut, %llu not found, %llu wrong; "
	       "%llu of %llu frames; %llu steps, at most %llu\n",
	       path, (unsigned long long)recording.samples, (unsigned long long)recording.whole,
	       (unsigned long long)recording.cut, (unsigned long long)recording.none,
	       (unsigned long long)recording.wrong, (unsigned long long)recording.frames,
	       (unsigned long long)recording.true_frames, (unsigned long long)recording.steps,
	       (unsigned long long)recording.most_steps);
	CHECK(recording.samples > 0);
	/* Not yet 0: with two chains from the same RIP, what a call has left may be the only one
	 * that is consistent (call_rcu() in a work item of kfree_rcu()). Samples do not use the
	 * search. */
	CHECK(recording.wrong * 500 <= recording.samples);
	CHECK(recording.whole * 2 > recording.samples);
	close_recording(&recording);
}

/* Ends the guest when its memory has been written. */
#define RECORD                                                                                      \
	"export HIDDEN_RSP_FILE=" FILE_NAME " HIDDEN_RSP_SAMPLES=%s; "                              \
	"build/rig/hidden-rsp-recorder run --no-sandbox --sampler kick --stack-time 0us --pmu off " \
	"--timeout 250 --mem 192M --cpus 2 -F 999 --from-line 'guest-init: up' "                    \
	"-o build/rig/hidden-rsp.data --kernel %s --initrd %s "                                     \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT                                        \
	" kvmscope.run=workload+mixed+300&workload+shares+300&while+:;do+"                          \
	"find+/+-type+f;ls+-lR+/proc;ls+-lR+/sys;find+/bin|cpio+-o+-H+newc|md5sum;"                 \
	"for+j+in+1+2+3+4+5+6+7+8;do+sh+-c+true;done;ps;mount;done>/dev/null+2>&1' "                \
	"> build/rig/hidden-rsp.log 2>&1 & own=$!; "                                                \
	"until grep -qs 'recorder: complete' build/rig/hidden-rsp.log; do sleep 0.5; "              \
	"kill -0 $own || exit 1; done; kill $own; wait $own; exit 0"

static void check_kernel(const char *version)
{
	const char *samples = getenv("KVMSCOPE_HIDDEN_RSP_SAMPLES");
	struct rig_result result;
	char path[64];

	RIG_REQUIRED();
	snprintf(path, sizeof(path), FILE_NAME, version);
	rig_run(&result, 290, RECORD, version, samples ? samples : SAMPLES, rig_kernel(version),
		rig_initrd(version));
	if (result.status)
		FAIL_TEST("recording %s failed: %s%s", version, result.output, result.errors);
	else
		check_file(path);
	remove(path);
	rig_result_free(&result);
}

TEST(stack_search_rig, no_chain_of_debian_6_1_is_wrong)
{
	check_kernel("6.1");
}

TEST(stack_search_rig, no_chain_of_debian_6_12_is_wrong)
{
	check_kernel("6.12");
}

TEST(stack_search_rig, no_chain_of_recorded_files_is_wrong)
{
	char *files = getenv("KVMSCOPE_HIDDEN_RSP_FILES"), *copy, *path, *rest;

	if (!files)
		SKIP("KVMSCOPE_HIDDEN_RSP_FILES is not set");
	copy = strdup(files);
	for (path = strtok_r(copy, " ", &rest); path; path = strtok_r(NULL, " ", &rest))
		check_file(path);
	free(copy);
}
