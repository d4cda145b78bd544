/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver against generated timelines: every sample is emitted once, in
 * order of time, with the mapping that brute force finds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/timeline.h"
#include "vmm/resolve/resolver.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SAMPLES 1000000u
#else
#define SAMPLES 10000000u
#endif
#define SAMPLES_EACH 4000u
#define VCPUS        4u
#define RINGS        (VCPUS + 2)
#define WINDOW       2000000u
#define PASS         300000u
#define BY_PID       1u

/* What comes out of a ring at some time: an event, or a sample. */
struct arrival {
	uint64_t at;
	uint32_t ring;
	const struct timeline_event *event; /* NULL: a sample */
	bool lost;                          /* the event; the loss is reported */
	struct sample sample;
};

struct proof {
	struct timeline timeline;
	uint64_t seed, state;
	uint32_t sample_delay; /* ns that a sample may come late, at most */
	uint32_t loses;        /* of 64 events */
	uint64_t late;
	uint64_t checked, known, mapped, wrong, last_time;
	uint64_t found, named; /* by CR3; by reports about their threads */
	bool out_of_order;
};

static uint32_t number_of(const char *name)
{
	while (*name && (*name < '0' || *name > '9'))
		name++;
	return (uint32_t)strtoul(name, NULL, 10);
}

static uint32_t number_of_image(const struct resolver_image *image)
{
	/* The name was made of the same number, and no two are equal. */
	return image && number_of(image->name) == image->inode ? (uint32_t)image->inode : 0;
}

/* The result is right; it may be missing only after a loss. */
static bool is_right(const struct proof *proof, uint32_t found, uint32_t right)
{
	return found == right || (proof->loses && !found);
}

static bool is_right_place(const struct proof *proof, const struct resolver_mapping *place,
			   const struct timeline_answer *right)
{
	if (proof->loses && !place->image)
		return true;
	return number_of_image(place->image) == right->image && place->offset == right->offset;
}

static bool is_right_task(const struct proof *proof, const struct sample *sample, uint32_t pid)
{
	return sample->pid == pid || (proof->loses && sample->pid == SAMPLE_TASK_UNKNOWN);
}

/*
 * Nothing runs in a process that has ended, nor where nothing is mapped: samples of that kind check
 * that ended mappings are dropped. Where the end of a thread was lost, its process is not known to
 * have ended with the others.
 */
static bool can_be(const struct proof *proof, const struct timeline_answer *right)
{
	return !proof->loses || right->image;
}

static void check_sample(void *context, const struct attributed_sample *sample)
{
	struct proof *proof = context;
	const struct sample *raw = sample->sample;
	bool by_pid = raw->host_tid == BY_PID; /* else by CR3 */
	struct timeline_answer right =
		timeline_ask(&proof->timeline, by_pid ? raw->pid : 0, raw->tid,
			     raw->cr3 & ~0x1fffull, raw->rip, raw->time);
	uint32_t pid = by_pid ? raw->pid : right.pid ? right.pid : SAMPLE_TASK_UNKNOWN;

	proof->checked++;
	proof->known += right.pid != 0;
	proof->mapped += right.image != 0;
	proof->out_of_order |= raw->time < proof->last_time;
	proof->last_time = raw->time;
	proof->found += !by_pid && raw->pid != SAMPLE_TASK_UNKNOWN;
	proof->named += *raw->comm != 0;
	if (!can_be(proof, &right))
		return;
	if (is_right_task(proof, raw, pid) && is_right(proof, number_of(raw->comm), right.comm) &&
	    is_right_place(proof, &sample->mapping, &right))
		return;
	if (!proof->wrong++)
		FAIL_TEST("seed %llu: at %llu, pid %u, address %#llx: image %u + %#llx, comm %u; "
			  "expected image %u + %#llx, comm %u",
			  (unsigned long long)proof->seed, (unsigned long long)raw->time, pid,
			  (unsigned long long)raw->rip, number_of_image(sample->mapping.image),
			  (unsigned long long)sample->mapping.offset, number_of(raw->comm),
			  right.image, (unsigned long long)right.offset, right.comm);
}

/* Mostly of running processes, some just after their end, and a few at the very time of an event.
 */
static void make_sample(struct proof *proof, struct sample *sample)
{
	struct timeline *timeline = &proof->timeline;
	const struct timeline_lifetime *life = &timeline->lifetimes[timeline_random(
		&proof->state, (uint32_t)timeline->lifetime_count)];
	uint64_t end = life->died < timeline->end ? life->died + life->died / 64 : timeline->end;
	uint64_t time = life->born + timeline_random(&proof->state, (uint32_t)(end - life->born));

	if (!timeline_random(&proof->state, 8))
		time = timeline->events[timeline_random(&proof->state, (uint32_t)timeline->count)]
			       .time;
	*sample = (struct sample){
		.time = time,
		.rip = TIMELINE_BASE + timeline_random(&proof->state, (TIMELINE_PAGES + 2) * 4096),
		.cpl = 3,
		.pid = SAMPLE_TASK_UNKNOWN,
		.tid = SAMPLE_TASK_UNKNOWN,
		.user_depth = 0,
	};
	/* In user space the other one of the pair of roots, and a PCID. */
	sample->cr3 = life->cr3 ? life->cr3 | 0x1000 | timeline_random(&proof->state, 16) : 0;
	if (timeline_random(&proof->state, 4)) {
		sample->host_tid = BY_PID;
		sample->pid = timeline_random(&proof->state, 8)
				      ? life->pid
				      : 1 + timeline_random(&proof->state, TIMELINE_PIDS + 1);
		sample->tid = timeline_random(&proof->state, 2)
				      ? sample->pid
				      : 1 + timeline_random(&proof->state, TIMELINE_PIDS);
	}
}

static struct arrival *make_arrivals(struct proof *proof, uint32_t samples, size_t *count)
{
	struct timeline *timeline = &proof->timeline;
	struct arrival *arrivals = calloc(timeline->count + samples, sizeof(*arrivals));

	*count = timeline->count + samples;
	for (size_t i = 0; i < *count; i++) {
		struct arrival *arrival = &arrivals[i];

		if (i < timeline->count)
			arrival->event = &timeline->events[i];
		else
			make_sample(proof, &arrival->sample);
		arrival->lost = arrival->event && timeline_random(&proof->state, 64) < proof->loses;
		arrival->ring = arrival->event ? timeline_random(&proof->state, RINGS)
					       : timeline_random(&proof->state, VCPUS);
		arrival->at =
			arrival->event
				? arrival->event->time + timeline_random(&proof->state, WINDOW)
				: arrival->sample.time +
					  timeline_random(&proof->state, proof->sample_delay);
	}
	return arrivals;
}

static int by_arrival(const void *left, const void *right)
{
	const struct arrival *a = left, *b = right;

	return (a->at > b->at) - (a->at < b->at);
}

static void push_lost(struct resolver *resolver, const struct arrival *arrival)
{
	uint64_t time = arrival->event->time;
	const struct sideband_lost lost = {
		.head = sideband_head(SIDEBAND_LOST, sizeof(lost), time, 0),
		.count = 1,
		.until = time,
	};

	resolver_sideband(resolver, arrival->ring, sideband_check(span_of(&lost, sizeof(lost))));
}

static void push(struct resolver *resolver, const struct arrival *arrival)
{
	if (arrival->lost)
		push_lost(resolver, arrival);
	else if (arrival->event)
		resolver_sideband(resolver, arrival->ring,
				  sideband_check(span_of(&arrival->event->record,
							 arrival->event->record.head.size)));
	else
		resolver_sample(resolver, arrival->ring, &arrival->sample);
}

static void end_pass(struct resolver *resolver)
{
	for (size_t ring = 0; ring < RINGS; ring++)
		resolver_pass_end(resolver, ring);
	resolver_flush(resolver);
}

static void run(struct resolver *resolver, const struct arrival *arrivals, size_t count)
{
	uint64_t now = 0;
	size_t next = 0;

	while (next < count) {
		now += PASS;
		resolver_begin_pass(resolver, now);
		for (; next < count && arrivals[next].at <= now; next++)
			push(resolver, &arrivals[next]);
		end_pass(resolver);
	}
	resolver_finish(resolver);
}

static size_t lives_at_end(const struct timeline *timeline)
{
	size_t count = 0;

	for (size_t i = 0; i < timeline->lifetime_count; i++)
		count += timeline->lifetimes[i].died == UINT64_MAX;
	return count;
}

/* Nothing was late or refused, and the dead are gone. */
static void check_end(struct resolver *resolver, struct proof *proof, uint32_t samples)
{
	struct resolver_statistics statistics;
	struct losses losses;

	for (int i = 0; i < 3; i++)
		end_pass(resolver);
	resolver_losses(resolver, &losses);
	resolver_statistics(resolver, &statistics);
	CHECK_EQUAL(losses.counts[LOSS_SIDEBAND_LATE], 0);
	proof->late += losses.counts[LOSS_SAMPLE_LATE];
	CHECK_EQUAL(losses.counts[LOSS_SIDEBAND_INVALID], 0);
	CHECK_EQUAL(statistics.samples, samples);
	CHECK_EQUAL(statistics.sideband, proof->timeline.count);
	CHECK(proof->loses || statistics.lifetimes == lives_at_end(&proof->timeline));
	CHECK_EQUAL(statistics.waiting, 0);
}

static void prove(struct proof *proof, uint64_t seed, uint32_t samples)
{
	struct resolver *resolver;
	struct arrival *arrivals;
	size_t count;

	proof->seed = proof->state = seed;
	proof->last_time = 0;
	timeline_make(&proof->timeline, seed, 10 + timeline_random(&proof->state, 300));
	arrivals = make_arrivals(proof, samples, &count);
	qsort(arrivals, count, sizeof(*arrivals), by_arrival);
	REQUIRE_EQUAL(resolver_create(&resolver, &(struct resolver_options){ .rings = RINGS,
									     .window = WINDOW,
									     .sample = check_sample,
									     .context = proof }),
		      0);
	run(resolver, arrivals, count);
	check_end(resolver, proof, samples);
	resolver_free(resolver);
	free(arrivals);
	timeline_free(&proof->timeline);
}

static struct proof prove_all(uint32_t sample_delay, uint32_t loses, uint32_t samples)
{
	const char *given = getenv("KVMSCOPE_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 1;
	struct proof proof = { .sample_delay = sample_delay, .loses = loses };

	printf("seeds from %llu on; KVMSCOPE_TEST_SEED=N begins elsewhere\n",
	       (unsigned long long)seed);
	for (; proof.checked < samples && !proof.wrong; seed++)
		prove(&proof, seed, SAMPLES_EACH);
	printf("%llu samples, %llu of known processes, %llu in a mapping, %llu late, %llu wrong\n",
	       (unsigned long long)proof.checked, (unsigned long long)proof.known,
	       (unsigned long long)proof.mapped, (unsigned long long)proof.late,
	       (unsigned long long)proof.wrong);
	CHECK_EQUAL(proof.wrong, 0);
	/* It would prove little if most samples were in nothing. */
	CHECK(proof.mapped > proof.checked / 4);
	return proof;
}

TEST(resolver, attributes_ten_million_samples_as_brute_force_does)
{
	struct proof proof = prove_all(WINDOW, 0, SAMPLES);

	CHECK_EQUAL(proof.late, 0);
	CHECK(!proof.out_of_order);
}

/* Ended processes and unmapped files are still known to a sample that is two passes late. */
TEST(resolver, late_samples_are_attributed_to_what_was_there)
{
	struct proof proof = prove_all(WINDOW + 2 * PASS, 0, SAMPLES / 10);

	CHECK(proof.late > proof.checked / 100);
}

/* Names, page tables and programs as well as mappings; later reports are used. */
TEST(resolver, reports_before_a_loss_are_used_for_no_sample)
{
	for (uint32_t loses = 1; loses <= 16; loses += 5) {
		struct proof proof = prove_all(WINDOW, loses, SAMPLES / 10);

		printf("%u of 64 events are lost: %llu found by their page tables, %llu named\n",
		       loses, (unsigned long long)proof.found, (unsigned long long)proof.named);
		CHECK(proof.found > proof.checked / 1000);
		CHECK(proof.named > proof.checked / 500);
	}
}
