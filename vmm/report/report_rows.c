/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/report_rows.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/pool.h"

struct builder {
	struct report *report;
	struct pool pool;
	struct hash_table table;
	struct report_row **rows;
	size_t count, capacity;
	uint64_t stamp; /* number of the stack being counted */
};

static bool same_row(const void *item, const void *key)
{
	const struct report_row *a = item, *b = key;

	return a->frame == b->frame && a->image == b->image && a->vcpu == b->vcpu &&
	       a->pid == b->pid && a->tid == b->tid && a->comm == b->comm && a->app == b->app &&
	       a->cgroup == b->cgroup && a->container == b->container;
}

static uint64_t hash_row(const struct report_row *row)
{
	uint64_t hash = hash_mix((uintptr_t)row->frame, (uintptr_t)row->image);

	hash = hash_mix(hash, (uint64_t)row->vcpu << 32 | row->pid);
	hash = hash_mix(hash, (uintptr_t)row->comm ^ row->tid);
	hash = hash_mix(hash_mix(hash, (uintptr_t)row->cgroup), (uintptr_t)row->container);
	return hash_mix(hash, (uintptr_t)row->app);
}

/* Finds or creates the row of a frame; NULL without memory. */
static struct report_row *row_of(struct builder *builder, const struct profile_stack *stack,
				 const struct profile_frame *frame)
{
	unsigned int keys = builder->report->options.keys;
	struct report_row wanted = {
		.frame = keys & REPORT_SYMBOL ? frame : NULL,
		.image = keys & (REPORT_SYMBOL | REPORT_IMAGE) ? frame->image : NULL,
		.kernel = frame->kernel,
		.vcpu = keys & REPORT_VCPU ? stack->vcpu : 0,
		.pid = keys & REPORT_PID ? stack->pid : 0,
		.tid = keys & REPORT_TID ? stack->tid : 0,
		.comm = keys & REPORT_COMM ? stack->comm : NULL,
		.app = keys & REPORT_APP ? stack->app : NULL,
		.cgroup = keys & REPORT_CGROUP ? stack->cgroup : NULL,
		.container = keys & REPORT_CONTAINER ? stack->container : NULL,
	};
	uint64_t hash = hash_row(&wanted);
	struct report_row *row = hash_table_find(&builder->table, hash, same_row, &wanted);

	if (row)
		return row;
	row = pool_alloc(&builder->pool, sizeof(*row));
	if (!row)
		return NULL;
	*row = wanted;
	if (hash_table_add(&builder->table, hash, row) ||
	    array_reserve(&builder->rows, &builder->capacity, builder->count + 1))
		return NULL;
	builder->rows[builder->count++] = row;
	return row;
}

static int count_vcpu(struct report_row *row, const struct profile_stack *stack)
{
	for (size_t i = 0; i < row->vcpu_count; i++)
		if (row->vcpus[i].vcpu == stack->vcpu) {
			row->vcpus[i].samples += stack->samples;
			row->vcpus[i].weight += stack->weight;
			return 0;
		}
	if (array_reserve(&row->vcpus, &row->vcpu_capacity, row->vcpu_count + 1))
		return -ENOMEM;
	row->vcpus[row->vcpu_count++] = (struct report_vcpu){ .vcpu = stack->vcpu,
							      .samples = stack->samples,
							      .weight = stack->weight };
	return 0;
}

static int count_total(struct builder *builder, struct report_row *row,
		       const struct profile_stack *stack)
{
	/* Recursive functions count once per sample. */
	if (row->stamp == builder->stamp)
		return 0;
	row->stamp = builder->stamp;
	row->total_samples += stack->samples;
	row->total_weight += stack->weight;
	return count_vcpu(row, stack);
}

static int count_stack(struct builder *builder, const struct profile_stack *stack)
{
	size_t depth = builder->report->options.children ? stack->depth : 1;

	builder->stamp++;
	for (size_t i = 0; i < depth; i++) {
		struct report_row *row = row_of(builder, stack, stack->frames[i]);

		if (!row || count_total(builder, row, stack))
			return -ENOMEM;
		if (i)
			continue;
		row->samples += stack->samples;
		row->weight += stack->weight;
	}
	return 0;
}

/* Appends the call chain of STACK from frame AT on to the row's paths. */
static int add_path(struct report_row *row, const struct report_options *options,
		    const struct profile_stack *stack, size_t at)
{
	bool from_itself = !(options->keys & REPORT_SYMBOL);
	struct report_path path = { .weight = stack->weight };

	if (options->children) {
		path.step = -1;
		path.length = from_itself ? stack->depth : at;
		path.next = stack->frames + path.length - 1;
	} else {
		path.step = 1;
		path.length = from_itself ? stack->depth : stack->depth - 1;
		path.next = stack->frames + (stack->depth - path.length);
	}
	if (array_reserve(&row->paths, &row->path_capacity, row->path_count + 1))
		return -ENOMEM;
	row->paths[row->path_count++] = path;
	return 0;
}

/* Recursive functions have one path for each sample, from the outermost call. */
static int add_paths(struct builder *builder, const struct profile_stack *stack)
{
	const struct report_options *options = &builder->report->options;

	builder->stamp++;
	for (size_t i = options->children ? stack->depth : 1; i-- > 0;) {
		struct report_row *row = row_of(builder, stack, stack->frames[i]);

		if (!row)
			return -ENOMEM;
		if (!row->has_tree || row->stamp == builder->stamp)
			continue;
		row->stamp = builder->stamp;
		if (add_path(row, options, stack, i))
			return -ENOMEM;
	}
	return 0;
}

static int busiest_first(const void *left, const void *right)
{
	const struct report_vcpu *a = left, *b = right;

	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	return a->vcpu < b->vcpu ? -1 : a->vcpu > b->vcpu;
}

static int compare_texts(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

static int compare_frames(const struct profile_frame *a, const struct profile_frame *b)
{
	int order = a && b ? compare_texts(a->symbol, b->symbol) : 0;

	if (order || !a || !b)
		return order;
	return a->address < b->address ? -1 : a->address > b->address;
}

/* Rows of equal weight have a fixed order. */
static int largest_first(const void *left, const void *right)
{
	const struct report_row *a = *(struct report_row *const *)left,
				*b = *(struct report_row *const *)right;
	static const size_t texts[] = { offsetof(struct report_row, image),
					offsetof(struct report_row, cgroup),
					offsetof(struct report_row, container),
					offsetof(struct report_row, app),
					offsetof(struct report_row, comm) };
	int order;

	if (a->total_weight != b->total_weight)
		return a->total_weight > b->total_weight ? -1 : 1;
	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	order = compare_frames(a->frame, b->frame);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && !order; i++)
		order = compare_texts(*(const char *const *)((const char *)a + texts[i]),
				      *(const char *const *)((const char *)b + texts[i]));
	if (!order)
		order = (a->pid > b->pid) - (a->pid < b->pid);
	if (!order)
		order = (a->tid > b->tid) - (a->tid < b->tid);
	return order ? order : (a->vcpu > b->vcpu) - (a->vcpu < b->vcpu);
}

const struct profile_event *report_event(const struct report *report)
{
	return profile_event(report->profile, report->options.event);
}

uint64_t report_scaled_hits(const struct profile_event *event)
{
	const struct perf_data_count *count = &event->count;

	if (!count->running || count->running >= count->enabled)
		return event->weight;
	return (uint64_t)((double)event->weight * (double)count->enabled / (double)count->running);
}

double report_tree_limit(const struct report_options *options)
{
	return options->percent_limit > 0 ? options->percent_limit : 0.5; /* perf's */
}

double report_percent(const struct report *report, uint64_t weight)
{
	uint64_t all = report_event(report)->weight;

	return all ? 100.0 * (double)weight / (double)all : 0;
}

static void apply_limits(struct report *report, size_t count)
{
	size_t shown = count;

	while (shown && report_percent(report, report->rows[shown - 1]->total_weight) <
				report->options.percent_limit)
		shown--;
	if (report->options.limit && shown > report->options.limit)
		shown = report->options.limit;
	report->count = shown;
	report->hidden = count - shown;
}

/* Only rows that are shown have paths: those of all would take the square of the depth. */
static int build_trees(struct builder *builder)
{
	struct report *report = builder->report;
	double least = report_tree_limit(&report->options);

	if (!report->options.call_trees)
		return 0;
	for (size_t i = 0; i < report->count; i++)
		report->rows[i]->has_tree =
			report_percent(report, report->rows[i]->total_weight) >= least;
	for (size_t i = 0; i < profile_stack_count(report->profile); i++) {
		const struct profile_stack *stack = profile_stack(report->profile, i);

		if (stack->event == report->options.event && add_paths(builder, stack))
			return -ENOMEM;
	}
	return 0;
}

int report_build(struct report **built, const struct profile *profile,
		 const struct report_options *options)
{
	struct report *report = calloc(1, sizeof(*report));
	struct builder *builder = calloc(1, sizeof(*builder));

	assert(options->keys);
	if (!report || !builder) {
		free(report);
		free(builder);
		return error_set(-ENOMEM, "no memory for the report");
	}
	*report = (struct report){ .profile = profile, .options = *options, .memory = builder };
	builder->report = report;
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		if (profile_stack(profile, i)->event == options->event &&
		    count_stack(builder, profile_stack(profile, i))) {
			report_free(report);
			return error_set(-ENOMEM, "no memory for the report");
		}
	for (size_t i = 0; i < builder->count; i++)
		qsort(builder->rows[i]->vcpus, builder->rows[i]->vcpu_count,
		      sizeof(struct report_vcpu), busiest_first);
	if (builder->count)
		qsort(builder->rows, builder->count, sizeof(struct report_row *), largest_first);
	report->rows = builder->rows;
	apply_limits(report, builder->count);
	if (build_trees(builder)) {
		report_free(report);
		return error_set(-ENOMEM, "no memory for the call trees");
	}
	*built = report;
	return 0;
}

void report_free(struct report *report)
{
	struct builder *builder = report ? report->memory : NULL;

	if (!report)
		return;
	for (size_t i = 0; i < builder->count; i++) {
		free(builder->rows[i]->vcpus);
		free(builder->rows[i]->paths);
	}
	free(builder->rows);
	hash_table_free(&builder->table);
	pool_free(&builder->pool);
	free(builder);
	free(report);
}
