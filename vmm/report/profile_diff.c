/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/profile_diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/error.h"
#include "shared/hash.h"
#include "shared/pool.h"

struct row {
	const char *image, *symbol; /* symbol: NULL if unknown */
	bool kernel;
	uint64_t weights[2]; /* in the baseline, in the other */
	double share, delta; /* of the baseline; of the other, more than that; percent */
};

struct diff {
	struct pool pool;
	struct hash_table table;
	struct row **rows;
	size_t count, capacity;
};

static bool same_row(const void *item, const void *key)
{
	const struct row *a = item, *b = key;

	return a->image == b->image && a->symbol == b->symbol && a->kernel == b->kernel;
}

/* Finds or creates the row of FRAME; NULL without memory. */
static struct row *row_of(struct diff *diff, const struct profile_frame *frame)
{
	struct row wanted = {
		.image = pool_string(&diff->pool, frame->image),
		.symbol = frame->symbol ? pool_string(&diff->pool, frame->symbol) : NULL,
		.kernel = frame->kernel,
	};
	uint64_t hash = hash_mix((uintptr_t)wanted.image + wanted.kernel, (uintptr_t)wanted.symbol);
	struct row *row;

	if (!wanted.image || (frame->symbol && !wanted.symbol))
		return NULL;
	row = hash_table_find(&diff->table, hash, same_row, &wanted);
	if (row)
		return row;
	row = pool_alloc(&diff->pool, sizeof(*row));
	if (!row || hash_table_add(&diff->table, hash, row) ||
	    array_reserve(&diff->rows, &diff->capacity, diff->count + 1))
		return NULL;
	*row = wanted;
	diff->rows[diff->count++] = row;
	return row;
}

static int count_stacks(struct diff *diff, const struct profile *profile, int which)
{
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);
		struct row *row;

		if (stack->event != profile_event_chosen(profile))
			continue;
		row = row_of(diff, stack->frames[0]);
		if (!row)
			return -ENOMEM;
		row->weights[which] += stack->weight;
	}
	return 0;
}

static double percent(const struct profile *profile, uint64_t weight)
{
	uint64_t all = profile_event(profile, profile_event_chosen(profile))->weight;

	return all ? 100.0 * (double)weight / (double)all : 0;
}

static const char *name_of(const struct row *row)
{
	return row->symbol ? row->symbol : "[unknown]";
}

static int compare_names(const struct row *a, const struct row *b)
{
	int order = strcmp(a->image, b->image);

	return order ? order : strcmp(name_of(a), name_of(b));
}

static int by_baseline(const void *left, const void *right)
{
	const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;

	if (a->share != b->share)
		return a->share > b->share ? -1 : 1;
	return compare_names(a, b);
}

static int by_delta(const void *left, const void *right)
{
	const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;

	if (fabs(a->delta) != fabs(b->delta))
		return fabs(a->delta) > fabs(b->delta) ? -1 : 1;
	return by_baseline(left, right);
}

/* The columns of perf diff: "[k]" is the guest's kernel, "[.]" everything else. */
static void print_row(const struct row *row, int width, FILE *to)
{
	if (row->weights[0])
		fprintf(to, "%9.2f%%", row->share);
	else
		fprintf(to, "%10s", "");
	fprintf(to, "  %+8.2f%%  %-*s  [%c] %s\n", row->delta, width, row->image,
		row->kernel ? 'k' : '.', name_of(row));
}

static void widen(int *width, const char *text, int more)
{
	int length = (int)strlen(text) + more;

	if (length > *width)
		*width = length;
}

static void print_dots(int width, FILE *to)
{
	fputs("  ", to);
	while (width--)
		fputc('.', to);
}

static void print_rows(const struct diff *diff, const char *event, FILE *to)
{
	static const char image[] = "Shared Object", symbol[] = "Symbol";
	int image_width = (int)strlen(image), symbol_width = (int)strlen(symbol);

	for (size_t i = 0; i < diff->count; i++) {
		widen(&image_width, diff->rows[i]->image, 0);
		widen(&symbol_width, name_of(diff->rows[i]), (int)strlen("[k] "));
	}
	fprintf(to, "# Event '%s'\n#\n# Baseline  Delta Abs  %-*s  %s\n# ........  .........",
		event, image_width, image, symbol);
	print_dots(image_width, to);
	print_dots(symbol_width, to);
	fputs("\n#\n", to);
	for (size_t i = 0; i < diff->count; i++)
		print_row(diff->rows[i], image_width, to);
}

int profile_diff_print(const struct profile *baseline, const struct profile *other,
		       enum profile_diff_order order, FILE *to)
{
	struct diff diff = { .count = 0 };
	int error = count_stacks(&diff, baseline, 0);

	if (!error)
		error = count_stacks(&diff, other, 1);
	for (size_t i = 0; i < diff.count; i++) {
		struct row *row = diff.rows[i];

		row->share = percent(baseline, row->weights[0]);
		row->delta = percent(other, row->weights[1]) - row->share;
	}
	if (error) {
		error_set(error, "no memory for the difference");
	} else {
		if (diff.count)
			qsort(diff.rows, diff.count, sizeof(*diff.rows),
			      order == PROFILE_DIFF_BY_BASELINE ? by_baseline : by_delta);
		print_rows(&diff, profile_event(other, profile_event_chosen(other))->name, to);
		if (fflush(to) || ferror(to))
			error = error_set(-EIO, "cannot write the difference: %s", strerror(errno));
	}
	hash_table_free(&diff.table);
	pool_free(&diff.pool);
	free(diff.rows);
	return error;
}
