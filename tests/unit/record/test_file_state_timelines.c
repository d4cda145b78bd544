/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver and the file state together, against generated timelines. A source reports mappings
 * and loses some events; samples carry their own mapping, but not always. The file is read as a
 * report reads it: a sample that carries its mapping reads as brute force says, one that does not
 * reads so, or as nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/timeline.h"
#include "vmm/record/file_state.h"
#include "vmm/report/profile_image.h"
#include "vmm/report/profile_timeline.h"
#include "vmm/resolve/resolver.h"

#define PASS    300000u
#define WINDOW  2000000u
#define SAMPLES 2000u
#define SEEDS   15u
#define NUMBERS 4096u /* of images */
#define PAGE    4096ull

struct small_sample {
	struct sample sample;
	uint64_t callchain[1];
	struct sample_mapping mapping;
};

struct written_sample {
	struct sample sample;
	bool carries; /* its own mapping */
};

struct proof {
	uint64_t error;          /* ns, of the guest's times, as reported; */
	uint64_t wrong_by;       /* and more than that, at most */
	uint32_t carries, loses; /* of 16 samples, and events */
	uint64_t delay;          /* ns, by which events come late */
	bool at_times;           /* not all do */

	struct timeline timeline;
	uint64_t state;
	struct file_state *file;
	struct image_catalog catalog;
	bool in_sample; /* what is written now is written for a sample */
	/* the file */
	struct pool pool;
	struct profile_timeline *read;
	struct profile_image images[NUMBERS];
	struct written_sample written[SAMPLES];
	size_t count;

	uint64_t filled, lost; /* records from samples, and lost by the guest */
	uint64_t right, right_itself, open, wrong, late; /* samples */
};

/* Image 0 is nothing. */
static int read_mapping(struct proof *proof, const struct sideband *head, uint64_t start,
			uint64_t length, uint64_t offset, uint64_t image)
{
	return profile_timeline_map(proof->read, false, (int32_t)head->pid, head->time, start,
				    length, offset, &proof->images[image]);
}

/* A reader of the file. */
static int read_record(void *context, const struct sideband *record)
{
	const struct sideband_munmap *munmap = (const void *)record;
	const struct sideband_fork *fork = (const void *)record;
	const struct sideband_mmap *mmap = (const void *)record;
	struct proof *proof = context;

	switch (record->type) {
	case SIDEBAND_MMAP:
		proof->filled += proof->in_sample;
		return read_mapping(proof, record, mmap->start, mmap->length, mmap->offset,
				    mmap->inode);
	case SIDEBAND_MUNMAP:
		return read_mapping(proof, record, munmap->start, munmap->length, munmap->start, 0);
	case SIDEBAND_FORK:
		return profile_timeline_fork(proof->read, record->pid, record->tid,
					     fork->parent_pid, fork->parent_tid, record->time,
					     false);
	default:
		return 0;
	}
}

static int read_comm(void *context, uint64_t time, const struct perf_data_task *task,
		     const char *comm)
{
	return 0;
}

static void take_sample(void *context, const struct attributed_sample *attributed)
{
	struct proof *proof = context;
	const struct sample *sample = attributed->sample;
	struct file_state_entry entry = { .task = { sample->pid, sample->tid, true } };

	proof->in_sample = true;
	REQUIRE_EQUAL(file_state_sample(proof->file, attributed, NULL, &entry), 0);
	proof->in_sample = false;
	proof->late += entry.late;
	if (!entry.late && !(sample->flags & SAMPLE_UNCERTAIN))
		proof->written[proof->count++] =
			(struct written_sample){ *sample, sample->mappings };
	else
		CHECK(!sample->mappings);
}

static void take_sideband(void *context, const struct sideband *record)
{
	struct proof *proof = context;

	CHECK_EQUAL(file_state_sideband(proof->file, record), 0);
}

/* Images are their numbers. */
static void fill_catalog(struct image_catalog *catalog)
{
	image_catalog_begin(catalog, 1);
	for (uint32_t i = 1; i < NUMBERS; i++) {
		union {
			struct sideband_mmap mmap;
			uint8_t bytes[sizeof(struct sideband_mmap) + 8];
		} file = { .mmap = { .inode = i } };

		REQUIRE_EQUAL(image_catalog_add(catalog, i, &file.mmap), 0);
	}
}

static bool is_in_piece(const struct timeline_answer *answer, const struct timeline_answer *of,
			uint64_t distance)
{
	return answer->image == of->image && answer->offset == of->offset + distance;
}

/* The pages around ADDRESS that are mapped with it, as a kernel keeps them. */
static void find_mapping(const struct proof *proof, struct small_sample *small)
{
	const struct sample *sample = &small->sample;
	uint64_t page = sample->rip & ~(PAGE - 1), start = page, end = page + PAGE;
	struct timeline_answer of =
		timeline_ask(&proof->timeline, sample->pid, 0, 0, page, sample->time);

	for (;; end += PAGE) {
		struct timeline_answer next =
			timeline_ask(&proof->timeline, sample->pid, 0, 0, end, sample->time);

		if (!is_in_piece(&next, &of, end - page))
			break;
	}
	for (;; start -= PAGE) {
		struct timeline_answer next = timeline_ask(&proof->timeline, sample->pid, 0, 0,
							   start - PAGE, sample->time);

		if (!is_in_piece(&of, &next, page - start + PAGE))
			break;
	}
	small->mapping = (struct sample_mapping){ .start = start,
						  .end = end,
						  .offset = of.offset - (page - start),
						  .image = of.image,
						  .images = 1 };
}

/* Code runs where something is mapped: other addresses are not sampled. */
static bool make_sample(struct proof *proof, struct small_sample *small)
{
	const struct timeline *timeline = &proof->timeline;

	for (int i = 0; i < 200; i++) {
		const struct timeline_lifetime *life = &timeline->lifetimes[timeline_random(
			&proof->state, (uint32_t)timeline->lifetime_count)];
		uint64_t end = life->died < timeline->end ? life->died : timeline->end;
		uint64_t time =
			life->born + timeline_random(&proof->state, (uint32_t)(end - life->born));

		*small = (struct small_sample){
			.sample = { .time = time,
				    .rip = TIMELINE_BASE +
					   timeline_random(&proof->state, TIMELINE_PAGES * 4096),
				    .cpl = 3,
				    .pid = life->pid,
				    .tid = life->pid,
				    .user_depth = 1,
				    .mappings =
					    timeline_random(&proof->state, 16) < proof->carries },
		};
		small->callchain[0] = small->sample.rip;
		if (!timeline_ask(timeline, life->pid, life->pid, 0, small->sample.rip, time).image)
			continue;
		find_mapping(proof, small);
		return true;
	}
	return false;
}

static int by_time(const void *left, const void *right)
{
	const struct small_sample *a = left, *b = right;

	return (a->sample.time > b->sample.time) - (a->sample.time < b->sample.time);
}

/* A record for one sample holds for another of the same time. */
static size_t drop_equal_times(struct small_sample *samples, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (!kept || samples[kept - 1].sample.time < samples[i].sample.time)
			samples[kept++] = samples[i];
	return kept;
}

static void give(struct resolver *resolver, struct sideband *record, const struct proof *proof,
		 int64_t off)
{
	record->time += (uint64_t)off;
	record->time_error = (uint32_t)proof->error;
	record->cr3 = 0;
	resolver_sideband(resolver, 1, sideband_check(span_of(record, record->size)));
}

/* Its kernel has no event for what is unmapped. */
static void give_event(struct proof *proof, struct resolver *resolver, struct timeline_event event,
		       int64_t off)
{
	struct sideband_lost lost = { .head = sideband_head(SIDEBAND_LOST, sizeof(lost),
							    event.record.head.time, 0),
				      .count = 1 };

	if (event.record.head.type == SIDEBAND_MUNMAP)
		return;
	if (timeline_random(&proof->state, 16) >= proof->loses)
		return give(resolver, &event.record.head, proof, off);
	lost.until = lost.head.time + (uint64_t)off;
	give(resolver, &lost.head, proof, off);
	proof->lost++;
}

/* When the guest reports EVENT, after all earlier ones. */
static uint64_t reported_at(const struct proof *proof, const struct timeline_event *event)
{
	bool late = !proof->at_times || event->time / (4 * WINDOW) % 2;

	return event->time + proof->error + proof->wrong_by + (late ? proof->delay : 0);
}

static void end_pass(struct resolver *resolver)
{
	resolver_pass_end(resolver, 0);
	resolver_pass_end(resolver, 1);
	resolver_flush(resolver);
}

static void run(struct proof *proof, struct resolver *resolver, const struct small_sample *samples,
		size_t count)
{
	uint64_t most = proof->error + proof->wrong_by;
	int64_t off =
		(int64_t)timeline_random(&proof->state, 2 * (uint32_t)most + 1) - (int64_t)most;
	size_t event = 0, sample = 0;

	for (uint64_t now = PASS; event < proof->timeline.count || sample < count; now += PASS) {
		resolver_begin_pass(resolver, now);
		for (; event < proof->timeline.count &&
		       reported_at(proof, &proof->timeline.events[event]) <= now;
		     event++)
			give_event(proof, resolver, proof->timeline.events[event], off);
		for (; sample < count && samples[sample].sample.time <= now; sample++)
			resolver_sample(resolver, 0, &samples[sample].sample);
		end_pass(resolver);
	}
	resolver_finish(resolver);
}

static const struct profile_mapping *find_in_file(const struct proof *proof,
						  const struct sample *sample)
{
	const struct profile_space *space =
		profile_timeline_space(proof->read, false, (int32_t)sample->pid, sample->time);

	return space ? profile_space_find(space, profile_space_epoch(space, sample->time),
					  sample->rip)
		     : NULL;
}

static void check_sample(struct proof *proof, const struct written_sample *written)
{
	const struct sample *sample = &written->sample;
	struct timeline_answer right = timeline_ask(&proof->timeline, sample->pid, sample->tid, 0,
						    sample->rip, sample->time);
	const struct profile_mapping *found = find_in_file(proof, sample);
	size_t image = found ? (size_t)(found->image - proof->images) : 0;

	if (!image && (!written->carries || (proof->error && (proof->delay || proof->wrong_by))))
		proof->open++;
	else if (image == right.image && sample->rip - found->start + found->offset == right.offset)
		(*(written->carries ? &proof->right_itself : &proof->right))++;
	else if (!proof->wrong++)
		printf("at %llu, pid %u, address %#llx, which %s: image %zu, not %u\n",
		       (unsigned long long)sample->time, sample->pid,
		       (unsigned long long)sample->rip,
		       written->carries ? "carries its mapping" : "carries none", image,
		       right.image);
}

static void prove(struct proof *proof, uint64_t seed)
{
	static struct small_sample samples[SAMPLES];
	struct resolver *resolver;
	size_t count = 0;

	proof->state = seed;
	timeline_make(&proof->timeline, seed, 10 + timeline_random(&proof->state, 300));
	while (count < SAMPLES && make_sample(proof, &samples[count]))
		count++;
	qsort(samples, count, sizeof(samples[0]), by_time);
	count = drop_equal_times(samples, count);
	proof->count = 0;
	proof->file = file_state_new(&(struct file_state_options){ .images = &proof->catalog,
								   .sources = true,
								   .record = read_record,
								   .comm = read_comm,
								   .context = proof });
	REQUIRE(proof->file != NULL);
	proof->pool = (struct pool){ 0 };
	proof->read = profile_timeline_new(&proof->pool);
	REQUIRE_EQUAL(
		resolver_create(&resolver, &(struct resolver_options){ .rings = 2,
								       .window = WINDOW,
								       .reach = proof->error,
								       .images = &proof->catalog,
								       .sample = take_sample,
								       .sideband = take_sideband,
								       .context = proof }),
		0);
	run(proof, resolver, samples, count);
	REQUIRE_EQUAL(profile_timeline_finish(proof->read), 0);
	for (size_t i = 0; i < proof->count; i++)
		check_sample(proof, &proof->written[i]);
	resolver_free(resolver);
	profile_timeline_free(proof->read);
	pool_free(&proof->pool);
	file_state_free(proof->file);
	timeline_free(&proof->timeline);
}

static struct proof prove_these(const struct proof *these)
{
	static struct proof proof;

	proof = *these;
	for (size_t i = 0; i < NUMBERS; i++)
		proof.images[i].path = "";
	fill_catalog(&proof.catalog);
	for (uint64_t seed = 1; seed <= SEEDS && !proof.wrong; seed++)
		prove(&proof, seed);
	printf("times within %llu ns, %u of 16 samples carry mappings, %u of 16 events are lost (%llu): %llu mappings written for samples; "
	       "%llu and %llu right, %llu open, %llu wrong, %llu late\n",
	       (unsigned long long)proof.error, proof.carries, proof.loses,
	       (unsigned long long)proof.lost, (unsigned long long)proof.filled,
	       (unsigned long long)proof.right_itself, (unsigned long long)proof.right,
	       (unsigned long long)proof.open, (unsigned long long)proof.wrong,
	       (unsigned long long)proof.late);
	image_catalog_free(&proof.catalog);
	CHECK_EQUAL(proof.wrong, 0);
	CHECK_EQUAL(proof.late, 0);
	return proof;
}

static struct proof prove_all(uint64_t error, uint32_t carries, uint32_t loses)
{
	return prove_these(&(struct proof){ .error = error, .carries = carries, .loses = loses });
}

/* What the guest does not know of is memory that was unmapped, and mapped no more: that is all that
 * is filled. */
TEST(file_state_timelines, what_a_source_reports_is_not_written_again)
{
	struct proof proof = prove_all(0, 16, 0);

	CHECK_EQUAL(proof.filled, 0);
	CHECK(proof.right_itself > SAMPLES);
	proof = prove_all(0, 0, 0);
	CHECK_EQUAL(proof.open, 0);
	CHECK_EQUAL(proof.filled, 0);
}

TEST(file_state_timelines, lost_events_are_filled_in_and_nothing_is_wrong)
{
	for (uint32_t loses = 1; loses <= 16; loses += 5)
		for (uint32_t carries = 0; carries <= 16; carries += 8) {
			struct proof proof = prove_all(0, carries, loses);

			CHECK(!carries || proof.filled > 0);
			CHECK(carries < 16 || !proof.open);
		}
}

TEST(file_state_timelines, nothing_is_wrong_with_an_inexact_clock)
{
	for (uint32_t loses = 0; loses <= 12; loses += 4)
		for (uint32_t carries = 8; carries <= 16; carries += 8)
			prove_all(100000, carries, loses);
}

TEST(file_state_timelines, nothing_is_wrong_with_late_reports)
{
	for (uint64_t delay = WINDOW / 2; delay <= 4 * WINDOW; delay += WINDOW / 2)
		prove_these(&(struct proof){ .carries = 16, .delay = delay });
}

/* Half of the samples read as reported, or not at all. */
TEST(file_state_timelines, nothing_is_wrong_with_late_reports_of_an_inexact_clock)
{
	for (uint64_t delay = WINDOW / 2; delay <= 4 * WINDOW; delay += WINDOW / 2)
		for (uint32_t carries = 8; carries <= 16; carries += 8)
			prove_these(&(struct proof){
				.error = 100000, .carries = carries, .delay = delay });
}

TEST(file_state_timelines, nothing_is_wrong_with_occasionally_late_reports)
{
	for (uint64_t delay = WINDOW; delay <= 4 * WINDOW; delay += WINDOW)
		for (uint32_t carries = 8; carries <= 16; carries += 8) {
			struct proof proof = prove_these(&(struct proof){ .error = 100000,
									  .carries = carries,
									  .delay = delay,
									  .at_times = true });

			CHECK(carries < 16 || !proof.open);
			CHECK(carries == 16 || proof.right > 1000);
		}
}

/* Nothing reports it: the mappings that samples carry hold. */
TEST(file_state_timelines, samples_with_mappings_are_right_with_a_wrong_clock)
{
	for (uint64_t delay = 0; delay <= 4 * WINDOW; delay += WINDOW)
		prove_these(&(struct proof){ .error = 100000,
					     .wrong_by = WINDOW,
					     .carries = 16,
					     .delay = delay,
					     .at_times = true });
}
