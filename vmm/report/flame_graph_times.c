/* SPDX-License-Identifier: Apache-2.0 */
/* When the samples of a flame graph were taken: what the page's heat map and its strips show. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "shared/array.h"
#include "vmm/report/flame_graph.h"
#include "vmm/report/numbered_frames.h"

#define NS_PER_MS   UINT64_C(1000000)
#define COLUMNS_MAX 600 /* about one pixel each on a screen */

/* The samples in one cell with one innermost frame. */
struct part {
	uint32_t frame; /* see put_part() */
	uint64_t samples, weight;
};

struct writer {
	FILE *to;
	const struct profile_sample *samples;
	const struct flame_tree *tree;
	uint64_t start, cell; /* ns */
	uint64_t period;      /* of all samples; 0: they differ */
	struct part *parts;
	size_t capacity;
	bool any; /* a part of this vCPU was written */
};

/* 100 ms, or 1 s from 10 s on, or as much (1, 2 or 5 with zeros) as makes few enough columns. */
static uint64_t column_duration(uint64_t duration)
{
	uint64_t column = NS_PER_MS * (duration < 10000 * NS_PER_MS ? 100 : 1000);

	for (unsigned int i = 0; duration / column >= COLUMNS_MAX; i++)
		column = i % 3 == 1 ? column / 2 * 5 : column * 2;
	return column;
}

/* Cells of a column: of 5 ms in short recordings, else of 20 ms and more. */
static unsigned int rows_of(uint64_t column)
{
	return column < 1000 * NS_PER_MS ? 20 : 50;
}

static int by_frame(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	return a->frame < b->frame ? -1 : a->frame > b->frame;
}

/*
 * Cells since the part before, frame, samples, and their weight unless all samples have the same.
 * The frame is twice the number of a frame in the page's tree, plus 1 if the samples are in callees
 * of it that the page does not have.
 */
static void put_part(struct writer *writer, uint64_t cells, const struct part *part)
{
	fprintf(writer->to, "%s%" PRIu64 ",%" PRIu32 ",%" PRIu64, writer->any ? "," : "", cells,
		part->frame, part->samples);
	if (!writer->period)
		fprintf(writer->to, ",%" PRIu64, part->weight);
	writer->any = true;
}

/* Samples with one frame become one part. CELLS: since the cell before. */
static void put_cell(struct writer *writer, uint64_t cells, size_t count)
{
	struct part sum = { 0 };

	qsort(writer->parts, count, sizeof(*writer->parts), by_frame);
	for (size_t i = 0; i < count; i++) {
		sum.frame = writer->parts[i].frame;
		sum.samples += writer->parts[i].samples;
		sum.weight += writer->parts[i].weight;
		if (i + 1 < count && writer->parts[i + 1].frame == sum.frame)
			continue;
		put_part(writer, cells, &sum);
		cells = 0;
		sum = (struct part){ 0 };
	}
}

static uint64_t cell_of(const struct writer *writer, const struct profile_sample *sample)
{
	return (sample->time - writer->start) / writer->cell;
}

static bool is_in_tree(const struct writer *writer, const struct profile_sample *sample)
{
	return writer->tree->leaves[sample->stack];
}

static struct part part_of(const struct writer *writer, const struct profile_sample *sample)
{
	const struct flame_node *node = writer->tree->leaves[sample->stack];

	return (struct part){
		.frame = 2 * node->number + node->omitted,
		.samples = 1,
		.weight = sample->weight,
	};
}

/* Those of the COUNT samples of one vCPU that are in the tree. */
static int put_vcpu(struct writer *writer, const struct profile_sample *samples, size_t count)
{
	uint64_t before = 0, cell = 0;
	size_t used = 0;

	writer->any = false;
	for (size_t i = 0; i < count; i++) {
		if (!is_in_tree(writer, &samples[i]))
			continue;
		if (used && cell_of(writer, &samples[i]) != cell) {
			put_cell(writer, cell - before, used);
			before = cell;
			used = 0;
		}
		cell = cell_of(writer, &samples[i]);
		if (array_reserve(&writer->parts, &writer->capacity, used + 1))
			return -ENOMEM;
		writer->parts[used++] = part_of(writer, &samples[i]);
	}
	if (used)
		put_cell(writer, cell - before, used);
	return 0;
}

static int put_vcpus(struct writer *writer, const struct profile *profile)
{
	size_t count;

	fputs("\"vcpus\":[", writer->to);
	for (size_t first = 0; (count = samples_of_vcpu(profile, first)); first += count) {
		char name[32];

		vcpu_name(writer->samples[first].vcpu, name, sizeof(name));
		fprintf(writer->to, "%s[\"%s\",[", first ? ",\n" : "", name);
		if (put_vcpu(writer, &writer->samples[first], count))
			return -ENOMEM;
		fputs("]]", writer->to);
	}
	fputc(']', writer->to);
	return 0;
}

static uint64_t common_period(const struct writer *writer, size_t count)
{
	uint64_t period = 0;

	for (size_t i = 0; i < count; i++) {
		const struct profile_sample *sample = &writer->samples[i];

		if (!is_in_tree(writer, sample))
			continue;
		if (!sample->weight || (period && sample->weight != period))
			return 0;
		period = sample->weight;
	}
	return period;
}

static uint64_t first_time(const struct profile_sample *samples, size_t count)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < count; i++)
		if (samples[i].time < first)
			first = samples[i].time;
	return first;
}

int flame_graph_put_times(const struct profile *profile, const struct flame_tree *tree, FILE *to)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(profile);
	uint64_t duration = profile_duration(profile), column = column_duration(duration);
	struct writer writer = {
		.to = to, .samples = samples, .tree = tree, .cell = column / rows_of(column)
	};
	int error;

	if (!samples)
		return 0;
	writer.start = first_time(samples, profile_samples(profile));
	writer.period = common_period(&writer, profile_samples(profile));
	fprintf(to,
		"\"times\":{\"start\":\"%" PRIu64 "\",\"cell\":%" PRIu64
		",\"rows\":%u,\"cells\":%" PRIu64 ",\"period\":%" PRIu64 ",\n",
		writer.start, writer.cell, rows_of(column), duration / writer.cell + 1,
		writer.period);
	error = put_vcpus(&writer, profile);
	fputs("},\n", to);
	free(writer.parts);
	return error;
}
