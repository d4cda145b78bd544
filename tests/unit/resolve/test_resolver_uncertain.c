/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events whose times are known within an error only: an event that may be before or after a sample
 * is not used for it, and a certain one is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/timeline.h"
#include "vmm/resolve/resolver.h"

#define PASS   300000u
#define WINDOW 2000000u

struct proof {
	struct timeline timeline;
	uint64_t state;
	uint64_t error;              /* of the events' times, ns */
	uint64_t step;               /* step of the source's times in ns; a part of the error */
	uint64_t right, open, wrong; /* samples: right, without a mapping, wrong */
	struct losses losses;
};

static uint32_t number_of_image(const struct resolver_image *image)
{
	return image ? (uint32_t)image->inode : 0;
}

static bool is_wrong(const struct attributed_sample *sample, const struct timeline_answer *right)
{
	const struct resolver_image *image = sample->mapping.image;

	return image &&
	       (number_of_image(image) != right->image || sample->mapping.offset != right->offset);
}

static void check_sample(void *context, const struct attributed_sample *sample)
{
	struct proof *proof = context;
	const struct sample *raw = sample->sample;
	struct timeline_answer right =
		timeline_ask(&proof->timeline, raw->pid, raw->tid, 0, raw->rip, raw->time);

	if (is_wrong(sample, &right))
		proof->wrong++;
	else if (sample->mapping.image)
		proof->right++;
	else
		proof->open++;
	CHECK_EQUAL(!!(raw->flags & SAMPLE_UNCERTAIN),
		    sample->mapping.verdict == RESOLVER_AMBIGUOUS);
	/* The chain holds the sample's own address, which goes with it. */
	CHECK_EQUAL(raw->user_depth, sample->mapping.verdict != RESOLVER_AMBIGUOUS);
}

/* Code runs where something is mapped: other addresses are not sampled. False where nothing was
 * found. */
static bool make_sample(struct proof *proof, struct sample *sample)
{
	struct timeline *timeline = &proof->timeline;

	for (int i = 0; i < 200; i++) {
		const struct timeline_lifetime *life = &timeline->lifetimes[timeline_random(
			&proof->state, (uint32_t)timeline->lifetime_count)];
		uint64_t end = life->died < timeline->end ? life->died : timeline->end;
		uint64_t time =
			life->born + timeline_random(&proof->state, (uint32_t)(end - life->born));

		*sample = (struct sample){
			.time = time,
			.rip = TIMELINE_BASE +
			       timeline_random(&proof->state, TIMELINE_PAGES * 4096),
			.cpl = 3,
			.pid = life->pid,
			.tid = life->pid,
			.user_depth = 1,
		};
		if (timeline_ask(timeline, life->pid, life->pid, 0, sample->rip, time).image)
			return true;
	}
	return false;
}

static int by_time(const void *left, const void *right)
{
	const struct sample *a = left, *b = right;

	return (a->time > b->time) - (a->time < b->time);
}

static void give_sample(struct resolver *resolver, const struct sample *sample)
{
	struct {
		struct sample sample;
		uint64_t callchain[1];
	} whole = { .sample = *sample };

	whole.callchain[0] = sample->rip;
	resolver_sample(resolver, 0, &whole.sample);
}

/* The event with the time that the source gives it: all of a source are off alike. */
static void give_event(struct proof *proof, struct resolver *resolver, struct timeline_event event,
		       int64_t off)
{
	event.record.head.time += (uint64_t)off;
	event.record.head.time -= event.record.head.time % proof->step;
	event.record.head.time_error = (uint32_t)proof->error;
	event.record.head.cr3 = 0;
	resolver_sideband(resolver, 1,
			  sideband_check(span_of(&event.record, event.record.head.size)));
}

static void end_pass(struct resolver *resolver)
{
	resolver_pass_end(resolver, 0);
	resolver_pass_end(resolver, 1);
	resolver_flush(resolver);
}

/* Both as their times come; events come after the samples of the same time. */
static void run(struct proof *proof, struct resolver *resolver, const struct sample *samples,
		size_t count)
{
	const uint32_t error = (uint32_t)(proof->error - (proof->step - 1));
	int64_t off = (int64_t)timeline_random(&proof->state, 2 * error + 1) - (int64_t)error;
	size_t event = 0, sample = 0;

	for (uint64_t now = PASS; event < proof->timeline.count || sample < count; now += PASS) {
		resolver_begin_pass(resolver, now);
		for (; event < proof->timeline.count &&
		       proof->timeline.events[event].time + proof->error <= now;
		     event++)
			give_event(proof, resolver, proof->timeline.events[event], off);
		for (; sample < count && samples[sample].time <= now; sample++)
			give_sample(resolver, &samples[sample]);
		end_pass(resolver);
	}
	resolver_finish(resolver);
}

static void prove(struct proof *proof, uint64_t seed)
{
	static struct sample samples[4000];
	struct resolver *resolver;
	struct losses losses;
	size_t count = 0;

	proof->state = seed;
	timeline_make(&proof->timeline, seed, 10 + timeline_random(&proof->state, 300));
	while (count < 4000 && make_sample(proof, &samples[count]))
		count++;
	qsort(samples, count, sizeof(samples[0]), by_time);
	REQUIRE_EQUAL(resolver_create(&resolver, &(struct resolver_options){ .rings = 2,
									     .window = WINDOW,
									     .reach = proof->error,
									     .sample = check_sample,
									     .context = proof }),
		      0);
	run(proof, resolver, samples, count);
	resolver_losses(resolver, &losses);
	for (int i = 0; i < LOSS_COUNT; i++)
		proof->losses.counts[i] += losses.counts[i];
	resolver_free(resolver);
	timeline_free(&proof->timeline);
}

static struct proof prove_all(uint64_t error, uint64_t step)
{
	struct proof proof = { .error = error, .step = step };

	for (uint64_t seed = 1; seed <= 60; seed++)
		prove(&proof, seed);
	printf("events known within %llu ns: %llu samples right, %llu open, %llu wrong\n",
	       (unsigned long long)error, (unsigned long long)proof.right,
	       (unsigned long long)proof.open, (unsigned long long)proof.wrong);
	CHECK_EQUAL(proof.wrong, 0);
	CHECK_EQUAL(proof.losses.counts[LOSS_SIDEBAND_LATE], 0);
	return proof;
}

TEST(resolver_uncertain, exact_times_leave_nothing_open)
{
	struct proof proof = prove_all(0, 1);

	CHECK_EQUAL(proof.open, 0);
	CHECK_EQUAL(proof.losses.counts[LOSS_UNCERTAIN], 0);
}

TEST(resolver_uncertain, nothing_is_wrong_and_certain_mappings_are_known)
{
	struct proof little = prove_all(20000, 1), much = prove_all(300000, 1);

	CHECK(little.right > little.open);
	CHECK(little.losses.counts[LOSS_UNCERTAIN] > 0);
	CHECK(much.open > little.open);
}

/* Events with equal times were each valid for some time. */
TEST(resolver_uncertain, events_of_one_moment_are_all_remembered)
{
	struct proof proof = prove_all(300000, 200000);

	CHECK(proof.right > 0);
}

/* Samples wait for a source that reports rounds. */
TEST(resolver_uncertain, samples_wait_for_the_next_round)
{
	struct sideband round = sideband_head(SIDEBAND_ROUND, sizeof(round), WINDOW, 0);
	struct resolver_statistics statistics;
	struct sample sample = { .time = 2 * WINDOW, .cpl = 3, .pid = 1 };
	struct resolver *resolver;

	REQUIRE_EQUAL(
		resolver_create(&resolver, &(struct resolver_options){ .rings = 2,
								       .window = WINDOW,
								       .longest = 10 * WINDOW }),
		0);
	resolver_begin_pass(resolver, 5 * WINDOW);
	resolver_sample(resolver, 0, &sample);
	resolver_sideband(resolver, 1, sideband_check(span_of(&round, sizeof(round))));
	end_pass(resolver);
	resolver_statistics(resolver, &statistics);
	CHECK_EQUAL(statistics.samples, 0);
	round.time = 3 * WINDOW;
	resolver_sideband(resolver, 1, sideband_check(span_of(&round, sizeof(round))));
	end_pass(resolver);
	resolver_statistics(resolver, &statistics);
	CHECK_EQUAL(statistics.samples, 1);
	CHECK_EQUAL(resolver_settled(resolver), 3 * WINDOW);
	/* but not forever */
	sample.time = 6 * WINDOW;
	resolver_sample(resolver, 0, &sample);
	resolver_begin_pass(resolver, 20 * WINDOW);
	end_pass(resolver);
	resolver_statistics(resolver, &statistics);
	CHECK_EQUAL(statistics.samples, 2);
	resolver_free(resolver);
}

struct places {
	struct resolver_mapping places[2];
	size_t count;
};

static void keep_place(void *context, const struct attributed_sample *sample)
{
	struct places *places = context;

	if (places->count < 2)
		places->places[places->count] = sample->mapping;
	places->count++;
}

/* As when a guest or its agent ends: after the last report, any mapping may have been replaced. */
TEST(resolver_uncertain, everything_is_ambiguous_after_the_last_round)
{
	struct places places = { .count = 0 };
	const struct resolver_options options = {
		.rings = 2, .window = WINDOW, .sample = keep_place, .context = &places
	};
	struct sideband_mmap mmap = {
		.head = sideband_head(SIDEBAND_MMAP, sideband_size(sizeof(mmap), ""), WINDOW, 1),
		.start = 4096,
		.length = 4096,
		.prot = PROT_READ | PROT_EXEC,
	};
	union {
		struct sideband_mmap mmap;
		uint8_t bytes[sizeof(mmap) + 8];
	} record = { .mmap = mmap };
	const struct sideband round = sideband_head(SIDEBAND_ROUND, sizeof(round), 3 * WINDOW, 0);
	struct sample sample = { .rip = 4096, .cpl = 3, .pid = 1 };
	struct resolver *resolver;

	REQUIRE_EQUAL(resolver_create(&resolver, &options), 0);
	resolver_begin_pass(resolver, 5 * WINDOW);
	resolver_sideband(resolver, 1, sideband_check(span_of(&record, record.mmap.head.size)));
	resolver_sideband(resolver, 1, sideband_check(span_of(&round, sizeof(round))));
	for (sample.time = 2 * WINDOW; sample.time <= 4 * WINDOW; sample.time += 2 * WINDOW)
		resolver_sample(resolver, 0, &sample);
	resolver_finish(resolver);
	REQUIRE_EQUAL(places.count, 2);
	CHECK(places.places[0].image && places.places[0].verdict == RESOLVER_REPORTED);
	CHECK(!places.places[1].image && places.places[1].verdict == RESOLVER_AMBIGUOUS);
	resolver_free(resolver);
}

/* Events may be out that are of later times than it. */
TEST(resolver_uncertain, what_is_settled_is_as_far_back_as_samples_waited)
{
	const struct sample sample = { .time = 3 * WINDOW, .cpl = 3, .pid = 1 };
	struct resolver *resolver;

	REQUIRE_EQUAL(resolver_create(&resolver, &(struct resolver_options){ .rings = 2,
									     .window = WINDOW,
									     .reach = 2 * WINDOW }),
		      0);
	CHECK_EQUAL(resolver_settled(resolver), 0);
	resolver_begin_pass(resolver, 4 * WINDOW);
	resolver_sample(resolver, 0, &sample);
	end_pass(resolver);
	CHECK_EQUAL(resolver_settled(resolver), WINDOW);
	resolver_begin_pass(resolver, 7 * WINDOW);
	end_pass(resolver);
	CHECK_EQUAL(resolver_settled(resolver), 4 * WINDOW);
	resolver_free(resolver);
}
