/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_decision.h"

#include <stdio.h>
#include <string.h>

#define HIGH_HALF (1ull << 63)

/* What the sources report of one address at the sample's time. */
struct report {
	const struct resolver_piece *piece; /* NULL: nothing */
	bool ambiguous;                     /* more than one mapping is possible */
	bool stale;                         /* reported before a loss of events */
	uint64_t since;                     /* as resolver_mapping.reported */
};

struct subject {
	const struct resolver_evidence *evidence;
	const struct sample *sample;
	const struct resolver_lifetime *lifetime; /* NULL: the process is not known */
	struct report latest; /* its piece, if any, holds at all of its addresses */
};

/* In the kernel CR3 does not identify the task: a kernel thread runs on the page tables of the task
 * before it (lazy TLB, Documentation/mm/active_mm.rst). */
static struct resolver_lifetime *lifetime_of(const struct resolver_evidence *evidence,
					     const struct sample *sample)
{
	const struct resolver_lifetimes *lifetimes = &evidence->processes->lifetimes;
	struct resolver_lifetime *lifetime;

	if (sample->flags & (SAMPLE_OTHER_KERNEL | SAMPLE_HOST))
		return NULL; /* processes are those of the guest's known kernel */
	if (sample->pid == SAMPLE_TASK_UNKNOWN)
		return sample->cpl
			       ? resolver_lifetimes_find_root(lifetimes, sample->cr3, sample->time,
							      evidence->processes->lost)
			       : NULL;
	/* The latest one that may have begun by then. */
	lifetime = resolver_lifetimes_latest(lifetimes, sample->pid,
					     sample->time + evidence->uncertainty);
	while (lifetime && lifetime->born > sample->time + lifetime->born_error)
		lifetime = lifetime->older;
	if (lifetime && lifetime->died != UINT64_MAX &&
	    sample->time >= lifetime->died + evidence->uncertainty)
		return NULL;
	return lifetime;
}

/* --- reports ---------------------------------------------------------------------- */

/* Readers of the file go by the reported times, whether they are exact or not. */
static bool is_displaced(const struct resolver_lifetime *lifetime,
			 const struct resolver_piece *piece, uint64_t time)
{
	return piece->from > time || piece->until <= time || lifetime->born > time ||
	       (lifetime->newer && lifetime->newer->born <= time);
}

static struct report report_in(const struct resolver_lifetime *lifetime,
			       const struct resolver_piece *piece, uint64_t time)
{
	if (!piece)
		return (struct report){ 0 };
	return (struct report){
		.piece = piece,
		.since = is_displaced(lifetime, piece, time) ? UINT64_MAX : piece->from,
	};
}

/* The mapping of ADDRESS at any moment that may have been TIME. Code only runs where something is
 * mapped: if exactly one mapping is possible, it is that one. */
static struct report report_about(const struct resolver_lifetime *lifetime, uint64_t address,
				  uint64_t time)
{
	struct report report = { 0 };
	bool several;

	for (; lifetime; lifetime = lifetime->older) {
		const struct resolver_piece *piece =
			resolver_space_find_about(&lifetime->space, address, time, &several);

		if (several ||
		    (piece && report.piece && !resolver_piece_is_same(piece, report.piece)))
			return (struct report){ .ambiguous = true };
		if (piece)
			report = report_in(lifetime, piece, time);
		if (lifetime->born + lifetime->born_error <= time)
			break; /* older ones had ended */
	}
	return report;
}

/* After a loss, what was mapped before PIECE may still be there, too. */
static bool is_stale(const struct resolver_piece *piece, uint64_t lost, uint64_t time)
{
	return piece && lost && (piece->from <= lost || piece->from + piece->from_error > time);
}

static struct report report_in_lifetime(const struct resolver_evidence *evidence,
					const struct resolver_lifetime *lifetime, uint64_t address,
					uint64_t time)
{
	struct report report;

	/* A source may still report an event from before TIME, but is no longer waited for. */
	if (time + evidence->uncertainty >= evidence->reported_until)
		return (struct report){ .ambiguous = true };
	report = evidence->uncertainty
			 ? report_about(lifetime, address, time)
			 : report_in(lifetime, resolver_space_find(&lifetime->space, address, time),
				     time);
	report.stale = is_stale(report.piece, evidence->processes->lost, time);
	if (!report.piece)
		report.since = lifetime->born;
	return report;
}

static struct report find_report(const struct resolver_evidence *evidence,
				 const struct resolver_lifetime *lifetime, uint64_t address,
				 uint64_t time)
{
	const struct resolver_piece *module;

	if (address & HIGH_HALF) {
		module = resolver_space_find(&evidence->processes->kernel, address, time);
		return (struct report){ .piece = module, .since = module ? module->from : 0 };
	}
	return lifetime ? report_in_lifetime(evidence, lifetime, address, time)
			: (struct report){ 0 };
}

/* Present pieces do not overlap: one that had certainly begun holds at all of its addresses. */
static bool holds_everywhere(const struct subject *subject, const struct resolver_piece *piece)
{
	const struct resolver_lifetime *lifetime = subject->lifetime;
	uint64_t time = subject->sample->time;

	return piece && lifetime && piece->until == UINT64_MAX &&
	       piece->from + piece->from_error <= time &&
	       lifetime->born + lifetime->born_error <= time;
}

/* Neighbours in a call chain mostly lie in the same mapping. */
static struct report report_at(struct subject *subject, uint64_t address)
{
	const struct resolver_piece *latest = subject->latest.piece;
	struct report report;

	if (latest && address >= latest->start && address < latest->end)
		return subject->latest;
	report = find_report(subject->evidence, subject->lifetime, address, subject->sample->time);
	subject->latest = holds_everywhere(subject, report.piece) ? report : (struct report){ 0 };
	return report;
}

/* --- decisions -------------------------------------------------------------------- */

/* By build id, else by inode, else by name: whatever both have. */
static bool is_same_file(const struct resolver_image *reported,
			 const struct resolver_image *carried)
{
	if (carried->build_id_size && reported->build_id_size)
		return carried->build_id_size == reported->build_id_size &&
		       !memcmp(carried->build_id, reported->build_id, carried->build_id_size);
	if (carried->inode && reported->inode)
		return carried->inode == reported->inode && carried->major == reported->major &&
		       carried->minor == reported->minor;
	return !strcmp(carried->name, reported->name);
}

static bool is_confirmed(const struct report *report, const struct resolver_mapping *carried,
			 uint64_t address)
{
	const struct resolver_piece *piece = report->piece;

	return piece && report->since != UINT64_MAX &&
	       address - piece->start + piece->offset == carried->offset &&
	       is_same_file(piece->image, carried->image);
}

/* What a sample carries was read from guest memory at its stop: true whatever was reported. */
static struct resolver_mapping decide_carried(const struct report *report, uint64_t address,
					      const struct sample_mapping *carried, uint16_t index,
					      const struct resolver_image *image)
{
	struct resolver_mapping decision = {
		.verdict = RESOLVER_CARRIED,
		.carried = index,
		.image = image,
		.start = carried->start,
		.end = carried->end,
		.offset = address - carried->start + carried->offset,
		.reported = report->ambiguous ? UINT64_MAX : report->since,
	};

	if (is_confirmed(report, &decision, address))
		decision.verdict = RESOLVER_CONFIRMED;
	return decision;
}

static struct resolver_mapping decide_reported(const struct report *report, uint64_t address)
{
	const struct resolver_piece *piece = report->piece;

	if (report->ambiguous)
		return (struct resolver_mapping){ .verdict = RESOLVER_AMBIGUOUS };
	if (!piece || report->stale)
		return (struct resolver_mapping){ .reported = report->since };
	return (struct resolver_mapping){
		.verdict = RESOLVER_REPORTED,
		.image = piece->image,
		.start = piece->start,
		.end = piece->end,
		.offset = address - piece->start + piece->offset,
		.reported = report->since,
	};
}

static struct resolver_mapping decide(struct subject *subject, uint64_t address)
{
	const struct sample *sample = subject->sample;
	const struct sample_mapping *carried = sample_mappings(sample);
	const struct resolver_image *image = NULL;
	struct report report = report_at(subject, address);
	uint16_t i = 0;

	while (i < sample->mappings &&
	       address - carried[i].start >= carried[i].end - carried[i].start)
		i++;
	if (i < sample->mappings)
		image = image_catalog_find(subject->evidence->images, &carried[i]);
	return image ? decide_carried(&report, address, &carried[i], i, image)
		     : decide_reported(&report, address);
}

/* --- the sample ------------------------------------------------------------------- */

/* The call chain ends before the first ambiguous address: readers of the file would guess one. */
static void cut_callchain(struct sample *sample, size_t depth)
{
	const uint8_t *end = (const uint8_t *)sample + sample_length(sample);
	const uint8_t *after = (const uint8_t *)sample_mappings(sample);

	sample->user_depth = (uint16_t)(depth - sample->kernel_depth);
	sample->flags |= SAMPLE_USER_TRUNCATED;
	memmove(sample_write_mappings(sample), after, (size_t)(end - after));
}

/* The first address of the chain may be the sample's own, which is counted for itself. */
static void decide_callchain(struct subject *subject, struct sample *sample,
			     struct resolver_mapping *user, struct losses *losses)
{
	size_t end = (size_t)sample->kernel_depth + sample->user_depth;

	for (size_t i = sample->kernel_depth; i < end; i++, user++) {
		*user = decide(subject, sample->callchain[i]);
		if (user->verdict == RESOLVER_AMBIGUOUS) {
			cut_callchain(sample, i);
			break;
		}
		losses->counts[LOSS_CALLCHAIN_NO_MAPPING] += i && user->verdict == RESOLVER_UNKNOWN;
	}
	if (sample->flags & (SAMPLE_KERNEL_TRUNCATED | SAMPLE_USER_TRUNCATED))
		losses->counts[LOSS_CALLCHAIN_TRUNCATED]++;
}

static void count_losses(const struct subject *subject, enum resolver_verdict verdict,
			 struct losses *losses)
{
	const struct sample *sample = subject->sample;

	if (sample->flags & SAMPLE_HOST)
		return;
	losses->counts[LOSS_LOOKUP_INCOMPLETE] += !!(sample->flags & SAMPLE_LOOKUP_INCOMPLETE);
	if (sample->flags & SAMPLE_OTHER_KERNEL)
		losses->counts[LOSS_OTHER_KERNEL]++;
	else if (!sample->cpl || (verdict != RESOLVER_UNKNOWN && verdict != RESOLVER_AMBIGUOUS))
		return;
	else if (!subject->lifetime)
		losses->counts[LOSS_NO_ADDRESS_SPACE]++;
	else if (verdict == RESOLVER_AMBIGUOUS)
		losses->counts[LOSS_UNCERTAIN]++;
	else
		losses->counts[LOSS_NO_MAPPING]++;
}

static void name_task(const struct subject *subject, struct sample *sample)
{
	const struct resolver_processes *processes = subject->evidence->processes;
	struct resolver_name name;

	if (sample->pid == SAMPLE_TASK_UNKNOWN && subject->lifetime)
		sample->pid = sample->tid = subject->lifetime->process->pid;
	if (*sample->comm || sample->tid == SAMPLE_TASK_UNKNOWN)
		return;
	name = resolver_threads_name_of(&processes->threads, sample->tid, sample->time);
	if (!processes->lost || name.reported > processes->lost)
		snprintf(sample->comm, sizeof(sample->comm), "%s", name.comm);
}

struct attributed_sample resolver_decide(const struct resolver_evidence *evidence,
					 struct sample *sample, struct resolver_mapping *user,
					 struct losses *losses)
{
	struct subject subject = { .evidence = evidence,
				   .sample = sample,
				   .lifetime = lifetime_of(evidence, sample) };
	struct attributed_sample result = { .sample = sample, .user = user };

	name_task(&subject, sample);
	result.mapping = decide(&subject, sample->rip);
	if (sample->cpl && result.mapping.verdict == RESOLVER_AMBIGUOUS)
		sample->flags |= SAMPLE_UNCERTAIN;
	count_losses(&subject, result.mapping.verdict, losses);
	decide_callchain(&subject, sample, user, losses);
	return result;
}
