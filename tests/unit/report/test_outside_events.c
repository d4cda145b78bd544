/* SPDX-License-Identifier: Apache-2.0 */
/* Events of time outside of the guest, from the writer to the profile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/profile_stacks.h"

#define PERIOD 1000000

static void write_sample(struct perf_data_writer *writer, uint16_t event, const char *reason)
{
	struct sample *sample = calloc(1, SAMPLE_LENGTH_MAX);

	REQUIRE(sample);
	sample->time = 1000;
	sample->period = PERIOD;
	sample->event = event;
	sample->flags = event ? SAMPLE_OUTSIDE : 0;
	sample->pid = sample->tid = 100;
	sample->cpl = 3;
	sample->rip = 0x401000;
	sample->user_depth = 2;
	sample->callchain[0] = 0x401000;
	sample->callchain[1] = 0x402000;
	if (event)
		snprintf(sample_write_outside(sample)->reason, sizeof(struct sample_outside), "%s",
			 reason);
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	free(sample);
}

static void write_recording(const char *path, struct perf_data_watches *events)
{
	const struct perf_data_options options = { .path = path,
						   .frequency = 1000,
						   .callchains = true,
						   .vcpus = 1,
						   .command_line = "test",
						   .watches = events };
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	write_sample(writer, 0, NULL);
	write_sample(writer, 1, "exit npf");
	write_sample(writer, 1, "exit npf");
	write_sample(writer, 1, "exit \x1b[31m47 bytes, which is the longest reason");
	write_sample(writer, 2, "off-cpu halted");
	write_sample(writer, 3, "any text");
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

static const struct profile_stack *stack_of(const struct profile *profile, size_t event,
					    uint64_t samples)
{
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		if (profile_stack(profile, i)->event == event &&
		    profile_stack(profile, i)->samples == samples)
			return profile_stack(profile, i);
	return NULL;
}

static const char *leaf_of(const struct profile *profile, size_t event, uint64_t samples)
{
	const struct profile_stack *stack = stack_of(profile, event, samples);

	return stack && stack->frames[0]->symbol ? stack->frames[0]->symbol : "";
}

TEST(outside_events, leaf_is_the_reason)
{
	struct perf_data_watches events = { 0 };
	char path[64];
	struct profile_options options = { .input = path, .vcpu = -1 };
	struct profile *profile;

	snprintf(path, sizeof(path), "build/outside-%d.data", getpid());
	perf_data_watches_add(&events,
			      &(struct perf_data_watch){ .outside = true, .name = "kvm:exit" });
	perf_data_watches_add(&events,
			      &(struct perf_data_watch){ .outside = true, .name = "kvm:off-cpu" });
	/* As perf record of another BPF program. */
	perf_data_watches_add(&events,
			      &(struct perf_data_watch){ .outside = true, .name = "other" });
	write_recording(path, &events);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	unlink(path);

	REQUIRE_EQUAL(profile_event_count(profile), 4);
	CHECK(!strcmp(profile_event(profile, 1)->name, "kvm:exit"));
	CHECK_EQUAL((int)profile_event(profile, 1)->unit, (int)PROFILE_NANOSECONDS);
	CHECK_EQUAL((int)profile_event(profile, 3)->unit, (int)PROFILE_EVENTS);
	CHECK_EQUAL(profile_event(profile, 1)->weight, 3 * PERIOD);
	CHECK(!profile_event(profile, 1)->frequency_changed);
	CHECK_EQUAL(profile_event(profile, 2)->weight, PERIOD);

	CHECK(!strcmp(leaf_of(profile, 1, 2), "[exit npf]"));
	REQUIRE(stack_of(profile, 1, 2));
	CHECK_EQUAL(stack_of(profile, 1, 2)->depth, 3);
	CHECK_EQUAL(stack_of(profile, 1, 2)->frames[1]->address, 0x401000);
	CHECK(!strcmp(leaf_of(profile, 2, 1), "[off-cpu halted]"));
	CHECK(!strchr(leaf_of(profile, 1, 1), '\x1b') && strstr(leaf_of(profile, 1, 1), "reason]"));
	CHECK_EQUAL(stack_of(profile, 0, 1)->depth, 2);
	CHECK_EQUAL(stack_of(profile, 3, 1)->depth, 2);
	profile_free(profile);
}
