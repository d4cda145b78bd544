/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sideband events that the flight recorder keeps, compared with brute force: with any number of
 * them in the base, later samples have their mappings.
 */
#include "vmm/record/flight_sideband.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/timeline.h"
#include "vmm/resolve/resolver.h"

#define EVENTS    2000u
#define SAMPLES   2000u
#define TIMELINES 100u
#define LATE      2000000u /* ns that a record may come after its time */

struct proof {
	struct timeline timeline;
	uint64_t seed, state;
	uint64_t checked, mapped, named, wrong;
};

static uint32_t number_of(const char *name)
{
	while (*name && (*name < '0' || *name > '9'))
		name++;
	return (uint32_t)strtoul(name, NULL, 10);
}

static void check_sample(void *context, const struct attributed_sample *sample)
{
	struct proof *proof = context;
	const struct sample *raw = sample->sample;
	struct timeline_answer right =
		timeline_ask(&proof->timeline, raw->pid, raw->tid, 0, raw->rip, raw->time);
	uint32_t image = sample->mapping.image ? number_of(sample->mapping.image->name) : 0;

	proof->checked++;
	proof->mapped += right.image != 0;
	proof->named += right.comm != 0;
	if (image == right.image && sample->mapping.offset == right.offset &&
	    number_of(raw->comm) == right.comm)
		return;
	if (!proof->wrong++)
		FAIL_TEST(
			"seed %llu: at %llu, pid %u, tid %u: image %u + %#llx, comm %u; expected %u + %#llx, %u",
			(unsigned long long)proof->seed, (unsigned long long)raw->time, raw->pid,
			raw->tid, image, (unsigned long long)sample->mapping.offset,
			number_of(raw->comm), right.image, (unsigned long long)right.offset,
			right.comm);
}

/* The events, each possibly some places from where it belongs. To be freed. */
static struct timeline_event *make_disorder(struct proof *proof)
{
	size_t count = proof->timeline.count;
	struct timeline_event *events = calloc(count, sizeof(*events));

	memcpy(events, proof->timeline.events, count * sizeof(*events));
	for (size_t i = 0; i + 3 < count; i++) {
		struct timeline_event *other = &events[i + timeline_random(&proof->state, 3)];
		struct timeline_event swapped = events[i];

		events[i] = *other;
		*other = swapped;
	}
	return events;
}

/* Drops old events now and then; returns the last horizon. */
static uint64_t keep_all(struct proof *proof, struct flight_sideband *sideband)
{
	struct timeline_event *events = make_disorder(proof);
	uint64_t horizon = 0;

	for (size_t i = 0; i < proof->timeline.count; i++) {
		const struct sideband *record = &events[i].record.head;

		flight_sideband_keep(sideband, record);
		if (record->time > LATE && !timeline_random(&proof->state, EVENTS / 4)) {
			horizon = record->time - LATE > horizon ? record->time - LATE : horizon;
			flight_sideband_advance(sideband, horizon);
		}
	}
	free(events);
	return horizon;
}

/* A sample of a process that is alive after the horizon. False: the drawn one had ended. */
static bool make_sample(struct proof *proof, uint64_t horizon, struct sample *sample)
{
	const struct timeline *timeline = &proof->timeline;
	const struct timeline_lifetime *life = &timeline->lifetimes[timeline_random(
		&proof->state, (uint32_t)timeline->lifetime_count)];
	uint64_t end = life->died < timeline->end ? life->died : timeline->end;
	uint64_t begin = life->born > horizon ? life->born : horizon;

	if (begin >= end)
		return false;
	*sample = (struct sample){
		.time = begin + timeline_random(&proof->state, (uint32_t)(end - begin)),
		.rip = TIMELINE_BASE + timeline_random(&proof->state, (TIMELINE_PAGES + 2) * 4096),
		.cpl = 3,
		.pid = life->pid,
		.tid = life->pid,
	};
	return true;
}

static void check_list(const struct flight_sideband_list *list, uint64_t horizon)
{
	for (size_t i = 0; i < list->count; i++) {
		CHECK(sideband_check(span_of(list->records[i], list->records[i]->size)));
		CHECK(list->records[i]->time >= horizon);
		CHECK(!i || list->records[i]->time >= list->records[i - 1]->time);
	}
}

static void ask(struct proof *proof, const struct flight_sideband_list *list, uint64_t horizon)
{
	struct resolver_options options = { .rings = 2, .sample = check_sample, .context = proof };
	struct resolver *resolver;

	REQUIRE_EQUAL(resolver_create(&resolver, &options), 0);
	resolver_begin_pass(resolver, proof->timeline.end);
	for (size_t i = 0; i < list->count; i++)
		resolver_sideband(resolver, 1, list->records[i]);
	for (unsigned int i = 0; i < SAMPLES; i++) {
		struct sample sample;

		if (make_sample(proof, horizon, &sample))
			resolver_sample(resolver, 0, &sample);
	}
	resolver_finish(resolver);
	resolver_free(resolver);
}

static void prove(struct proof *proof)
{
	struct flight_sideband sideband = { 0 };
	struct flight_sideband_list list;
	uint64_t horizon;

	proof->state = proof->seed * 2654435761u + 1;
	timeline_make(&proof->timeline, proof->seed, EVENTS);
	horizon = keep_all(proof, &sideband);
	CHECK_EQUAL(sideband.missed, 0);
	CHECK_EQUAL(sideband.base_time, horizon);
	CHECK_EQUAL(flight_sideband_export(&sideband, &list), 0);
	check_list(&list, horizon);
	ask(proof, &list, horizon);
	flight_sideband_list_free(&list);
	flight_sideband_free(&sideband);
	timeline_free(&proof->timeline);
}

TEST(flight_sideband, samples_after_the_base_have_their_mappings)
{
	struct proof proof = { 0 };

	for (proof.seed = 1; proof.seed <= TIMELINES && !proof.wrong; proof.seed++)
		prove(&proof);
	CHECK_EQUAL(proof.wrong, 0);
	/* Or nothing was asked. */
	CHECK(proof.checked > TIMELINES * SAMPLES / 10);
	CHECK(proof.mapped > proof.checked / 20);
	CHECK(proof.named > proof.checked / 4);
}

/* --- cgroups, which samples do not ask for ---------------------------------------- */

#define PARENT 7u
#define CHILD  8u

static void keep_cgroup(struct flight_sideband *sideband, uint32_t pid, uint64_t time,
			const char *path)
{
	uint64_t bytes[64] = { 0 };
	struct sideband_cgroup *cgroup = (struct sideband_cgroup *)bytes;

	cgroup->head =
		sideband_head(SIDEBAND_CGROUP, sideband_size(sizeof(*cgroup), path), time, pid);
	cgroup->id = pid == PARENT ? 17 : 0;
	strcpy(cgroup->path, path);
	REQUIRE(sideband_check(span_of(bytes, sizeof(bytes))));
	flight_sideband_keep(sideband, &cgroup->head);
}

static void keep_comm(struct flight_sideband *sideband, uint32_t pid, uint64_t time, uint16_t flags)
{
	struct sideband_comm comm = { .head = sideband_head(SIDEBAND_COMM, sizeof(comm), time, pid),
				      .comm = "x" };

	comm.head.flags = flags;
	flight_sideband_keep(sideband, &comm.head);
}

/* Checks the cgroup of PID in a file that begins now. */
static void check_cgroup(struct flight_sideband *sideband, uint32_t pid, const char *expected)
{
	struct flight_sideband_list list;
	const char *found = "";

	CHECK_EQUAL(flight_sideband_export(sideband, &list), 0);
	for (size_t i = 0; i < list.count; i++) {
		const struct sideband *record = list.records[i];

		CHECK(sideband_check(span_of(record, record->size)));
		if (record->type == SIDEBAND_CGROUP && record->pid == pid)
			found = ((const struct sideband_cgroup *)record)->path;
	}
	CHECK_STRING(found, expected);
	flight_sideband_list_free(&list);
}

TEST(flight_sideband, files_begin_with_the_cgroups_of_the_base)
{
	struct flight_sideband sideband = { 0 };
	struct sideband_fork fork = { .head = sideband_head(SIDEBAND_FORK, sizeof(fork), 20, CHILD),
				      .parent_pid = PARENT,
				      .parent_tid = PARENT };
	const struct sideband end = sideband_head(SIDEBAND_EXIT, sizeof(end), 60, PARENT);

	keep_comm(&sideband, PARENT, 10, 0);
	keep_cgroup(&sideband, PARENT, 10, "/system.slice");
	flight_sideband_keep(&sideband, &fork.head);
	flight_sideband_advance(&sideband, 30);
	check_cgroup(&sideband, PARENT, "/system.slice");
	check_cgroup(&sideband, CHILD, "/system.slice");
	keep_comm(&sideband, CHILD, 40, SIDEBAND_COMM_EXEC);
	flight_sideband_advance(&sideband, 50);
	check_cgroup(&sideband, CHILD, "");
	keep_cgroup(&sideband, CHILD, 50, "/docker/1");
	flight_sideband_keep(&sideband, &end);
	flight_sideband_advance(&sideband, 70);
	check_cgroup(&sideband, CHILD, "/docker/1");
	check_cgroup(&sideband, PARENT, "");
	CHECK_EQUAL(sideband.missed, 0);
	flight_sideband_free(&sideband);
}

/* A guest can make up as many as it likes. */
TEST(flight_sideband, cgroups_are_bounded)
{
	struct flight_sideband sideband = { 0 };
	struct {
		struct sideband_cgroup cgroup;
		char path[8];
	} record = { .cgroup.head = sideband_head(SIDEBAND_CGROUP, sizeof(record), 1, PARENT) };
	char last[sizeof(record.path)];

	keep_comm(&sideband, PARENT, 1, 0);
	for (uint32_t i = 1; i <= 3 * FLIGHT_CGROUPS_MAX; i++) {
		record.cgroup.head.time = record.cgroup.id = i;
		snprintf(record.path, sizeof(record.path), "/%u", i);
		flight_sideband_keep(&sideband, &record.cgroup.head);
		flight_sideband_advance(&sideband, i + 1);
		CHECK(sideband.cgroup_count && sideband.cgroup_count <= FLIGHT_CGROUPS_MAX);
	}
	snprintf(last, sizeof(last), "/%u", 3 * FLIGHT_CGROUPS_MAX);
	check_cgroup(&sideband, PARENT, last);
	CHECK_EQUAL(sideband.missed, 0);
	flight_sideband_free(&sideband);
}

static void keep_mapping(struct flight_sideband *sideband, uint32_t pid, uint64_t time)
{
	struct {
		struct sideband_mmap mmap;
		char name[16];
	} record = { .mmap = { .start = TIMELINE_BASE, .length = 4096, .prot = 5 },
		     .name = "/bin/one" };

	record.mmap.head = sideband_head(SIDEBAND_MMAP, sizeof(record), time, pid);
	flight_sideband_keep(sideband, &record.mmap.head);
}

static void keep_lost(struct flight_sideband *sideband, uint64_t time, uint64_t until)
{
	struct sideband_lost lost = { .head = sideband_head(SIDEBAND_LOST, sizeof(lost), time, 0),
				      .until = until };

	REQUIRE(sideband_check(span_of(&lost, sizeof(lost))));
	flight_sideband_keep(sideband, &lost.head);
}

static void keep_name(struct flight_sideband *sideband, uint32_t pid, uint64_t time,
		      const char *name)
{
	struct sideband_comm comm = { .head = sideband_head(SIDEBAND_COMM, sizeof(comm), time,
							    pid) };

	comm.head.cr3 = pid << 12;
	snprintf(comm.comm, sizeof(comm.comm), "%s", name);
	flight_sideband_keep(sideband, &comm.head);
}

static void note_task(void *context, const struct attributed_sample *sample)
{
	strcat(context, *sample->sample->comm ? sample->sample->comm : "-");
}

/* In a file that begins now: what samples at 50 are called that know processes 1 to 3, or their
 * page tables.
 */
static void check_names(struct flight_sideband *sideband, const char *names)
{
	char found[64] = "";
	struct resolver_options options = { .rings = 2, .sample = note_task, .context = found };
	struct flight_sideband_list list;
	struct resolver *resolver;

	CHECK_EQUAL(flight_sideband_export(sideband, &list), 0);
	REQUIRE_EQUAL(resolver_create(&resolver, &options), 0);
	resolver_begin_pass(resolver, 50);
	for (size_t i = 0; i < list.count; i++)
		resolver_sideband(resolver, 1, list.records[i]);
	for (uint32_t pid = 1; pid <= 3; pid++) {
		struct sample sample = { .time = 50, .cpl = 3, .pid = pid, .tid = pid };

		resolver_sample(resolver, 0, &sample);
		sample.cr3 = pid << 12;
		sample.pid = sample.tid = SAMPLE_TASK_UNKNOWN;
		resolver_sample(resolver, 0, &sample);
	}
	resolver_finish(resolver);
	CHECK_STRING(found, names);
	resolver_free(resolver);
	flight_sideband_list_free(&list);
}

TEST(flight_sideband, names_and_page_tables_of_the_base_are_stale_after_a_loss)
{
	struct flight_sideband sideband = { 0 };

	keep_name(&sideband, 1, 10, "a");
	keep_mapping(&sideband, 1, 30);
	keep_name(&sideband, 2, 24, "b");
	keep_name(&sideband, 3, 30, "c");
	check_names(&sideband, "aabbcc");
	keep_lost(&sideband, 20, 25);
	check_names(&sideband, "----cc");
	flight_sideband_advance(&sideband, 40);
	check_names(&sideband, "----cc");
	keep_name(&sideband, 1, 45, "d");
	check_names(&sideband, "dd--cc");
	flight_sideband_free(&sideband);
}

/* In a file that begins now, of samples at 50 in processes 1 to 3. */
static uint64_t count_unknown(struct flight_sideband *sideband)
{
	struct resolver_options options = { .rings = 2 };
	struct flight_sideband_list list;
	struct resolver *resolver;
	struct losses losses;

	CHECK_EQUAL(flight_sideband_export(sideband, &list), 0);
	CHECK_EQUAL(resolver_create(&resolver, &options), 0);
	resolver_begin_pass(resolver, 50);
	for (size_t i = 0; i < list.count; i++) {
		CHECK(sideband_check(span_of(list.records[i], list.records[i]->size)));
		resolver_sideband(resolver, 1, list.records[i]);
	}
	for (uint32_t pid = 1; pid <= 3; pid++) {
		const struct sample sample = {
			.time = 50, .rip = TIMELINE_BASE, .cpl = 3, .pid = pid, .tid = pid
		};

		resolver_sample(resolver, 0, &sample);
	}
	resolver_finish(resolver);
	resolver_losses(resolver, &losses);
	CHECK_EQUAL(losses.counts[LOSS_NO_ADDRESS_SPACE], 0);
	resolver_free(resolver);
	flight_sideband_list_free(&list);
	return losses.counts[LOSS_NO_MAPPING];
}

TEST(flight_sideband, reports_of_the_base_are_stale_after_a_loss)
{
	struct flight_sideband sideband = { 0 };

	keep_mapping(&sideband, 1, 10);
	keep_lost(&sideband, 20, 25);
	keep_mapping(&sideband, 2, 24);
	keep_mapping(&sideband, 3, 30);
	CHECK_EQUAL(count_unknown(&sideband), 2);
	flight_sideband_advance(&sideband, 22);
	CHECK_EQUAL(count_unknown(&sideband), 2);
	flight_sideband_advance(&sideband, 40);
	CHECK_EQUAL(count_unknown(&sideband), 2);
	keep_lost(&sideband, 20, 35);
	CHECK_EQUAL(count_unknown(&sideband), 3);
	keep_mapping(&sideband, 1, 45);
	CHECK_EQUAL(count_unknown(&sideband), 2);
	CHECK_EQUAL(sideband.missed, 0);
	flight_sideband_free(&sideband);
}
