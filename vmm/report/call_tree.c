/* SPDX-License-Identifier: Apache-2.0 */
/* The call tree of a row as text, drawn as perf report -g does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/report_rows.h"

#define INDENT       12
#define INDENT_SIZE  640 /* a branch indents by 11 columns */
#define MARK_WIDTH   11
#define NAME_WIDTH   8  /* at least */
#define BRANCHES_MAX 48 /* below each other: chains of the guest may be deeper than a screen */

/* Paths of one range that have the same frame at one level. */
struct branch {
	const struct profile_frame *frame;
	struct report_path *paths;
	size_t count;
	uint64_t weight;
};

struct tree {
	const struct report *report;
	FILE *to;
	double limit; /* percent */
	char indent[INDENT_SIZE];
	size_t nested; /* branches around this one */
};

static const struct profile_frame *frame_at(const struct report_path *path, size_t level)
{
	return level < path->length ? path->next[(ptrdiff_t)level * path->step] : NULL;
}

static int by_frame(const void *left, const void *right, void *level)
{
	uintptr_t a = (uintptr_t)frame_at(left, *(const size_t *)level);
	uintptr_t b = (uintptr_t)frame_at(right, *(const size_t *)level);

	return a < b ? -1 : a > b;
}

/* Branches of equal weight have a fixed order. */
static int heaviest_first(const void *left, const void *right)
{
	const struct branch *a = left, *b = right;
	char text[24], other[24];

	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	return strcmp(report_frame_name(text, a->frame), report_frame_name(other, b->frame));
}

/*
 * Splits COUNT paths by their frame at LEVEL, which sorts them. Paths that have ended belong to no
 * branch. The branches, of which the caller frees the array; NULL without memory.
 */
static struct branch *split(struct report_path *paths, size_t count, size_t level, size_t *branches)
{
	struct branch *list = calloc(count + 1, sizeof(*list)), *last = list;

	*branches = 0;
	if (!list)
		return NULL;
	qsort_r(paths, count, sizeof(*paths), by_frame, &level);
	for (size_t i = 0; i < count; i++) {
		const struct profile_frame *frame = frame_at(&paths[i], level);

		if (!frame)
			continue;
		if (!*branches || last->frame != frame) {
			last = &list[(*branches)++];
			*last = (struct branch){ .frame = frame, .paths = &paths[i] };
		}
		last->count++;
		last->weight += paths[i].weight;
	}
	qsort(list, *branches, sizeof(*list), heaviest_first);
	return list;
}

static void print_line(const struct tree *tree, const char *mark, const char *name)
{
	size_t used = strlen(tree->indent) + strlen(mark), columns = tree->report->options.columns;

	if (columns)
		columns = columns > used + NAME_WIDTH ? columns - used : NAME_WIDTH;
	fprintf(tree->to, "%s%s", tree->indent, mark);
	report_print_cut(name, columns, tree->to);
	fputc('\n', tree->to);
}

static bool has_level(const struct branch *branch, size_t level)
{
	for (size_t i = 0; i < branch->count; i++)
		if (level < branch->paths[i].length)
			return true;
	return false;
}

/* True if a line of another branch does not fit. */
static bool is_deep(const struct tree *tree)
{
	size_t columns = tree->report->options.columns;

	return tree->nested > BRANCHES_MAX ||
	       (columns && strlen(tree->indent) + MARK_WIDTH + NAME_WIDTH > columns);
}

static int print_level(struct tree *tree, struct branch *parent, size_t level);

/* The branch and what is below it, indented; MORE branches follow. */
static int print_branch(struct tree *tree, struct branch *branch, size_t level, bool more)
{
	size_t length = strlen(tree->indent);
	char mark[24], name[24];
	int width, error = 0;

	print_line(tree, "|", "");
	width = snprintf(mark, sizeof(mark), "%c--%.2f%%--", more ? '|' : ' ',
			 report_percent(tree->report, branch->weight));
	print_line(tree, mark, report_frame_name(name, branch->frame));
	tree->nested++;
	snprintf(tree->indent + length, INDENT_SIZE - length, "%-*s", width, more ? "|" : "");
	if (!is_deep(tree))
		error = print_level(tree, branch, level + 1);
	else if (has_level(branch, level + 1))
		print_line(tree, "", "[...]");
	tree->indent[length] = '\0';
	tree->nested--;
	return error;
}

/* Branches below the limit become one line if it is worth one. */
static int print_branches(struct tree *tree, struct branch *branches, size_t count, size_t level)
{
	uint64_t rest = 0;
	size_t shown = 0;
	char mark[24];
	int error = 0;

	while (shown < count && report_percent(tree->report, branches[shown].weight) >= tree->limit)
		shown++;
	for (size_t i = shown; i < count; i++)
		rest += branches[i].weight;
	if (report_percent(tree->report, rest) < tree->limit)
		rest = 0;
	for (size_t i = 0; i < shown && !error && !ferror(tree->to); i++)
		error = print_branch(tree, &branches[i], level, i + 1 < shown || rest);
	if (!rest)
		return error;
	snprintf(mark, sizeof(mark), " --%.2f%%--", report_percent(tree->report, rest));
	print_line(tree, "|", "");
	print_line(tree, mark, "[...]");
	return error;
}

/* A single branch with all of its parent's weight continues the column of its parent. */
static int print_level(struct tree *tree, struct branch *parent, size_t level)
{
	struct branch at = *parent, *branches;
	char name[24];
	size_t count;
	int error;

	for (;; level++) {
		branches = split(at.paths, at.count, level, &count);
		if (!branches)
			return error_set(-ENOMEM, "no memory for the call trees");
		if (count != 1 || branches[0].weight != at.weight)
			break;
		at = branches[0];
		free(branches);
		print_line(tree, "", report_frame_name(name, at.frame));
	}
	error = print_branches(tree, branches, count, level);
	free(branches);
	return error;
}

/* The first frame, if all chains have it, is drawn with perf's "---". */
static int print_root(struct tree *tree, struct branch *root)
{
	struct branch *first;
	char name[24];
	size_t count;
	int error;

	first = split(root->paths, root->count, 0, &count);
	if (!first)
		return error_set(-ENOMEM, "no memory for the call trees");
	if (count == 1 && first->weight == root->weight) {
		print_line(tree, "|", "");
		print_line(tree, "---", report_frame_name(name, first->frame));
		memcpy(tree->indent + INDENT, "   ", 4);
		error = print_level(tree, first, 1);
	} else {
		error = print_branches(tree, first, count, 0);
	}
	if (count)
		fputc('\n', tree->to);
	free(first);
	return error;
}

int report_print_call_tree(const struct report *report, const struct report_row *row, FILE *to)
{
	struct tree tree = { .report = report,
			     .to = to,
			     .limit = report_tree_limit(&report->options) };
	struct branch root = { .paths = row->paths, .count = row->path_count };

	if (!root.count)
		return 0;
	for (size_t i = 0; i < root.count; i++)
		root.weight += root.paths[i].weight;
	memset(tree.indent, ' ', INDENT);
	return print_root(&tree, &root);
}
