/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/flame_graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/json_text.h"

#define NODES_MAX 50000 /* the widest frames; more make the page slow */

#define MARK "{{DATA}}" /* replaced by the data in the page */

/* The path is relative to the project's root, where make runs; module.mk creates the file. */
__asm__(".pushsection .rodata\n"
	"flame_graph_page_start:\n"
	".incbin \"build/web/flame_graph.html\"\n"
	"flame_graph_page_end:\n"
	".popsection\n");

extern const char flame_graph_page_start[], flame_graph_page_end[];

struct writer {
	FILE *to;
	uint64_t least; /* smallest weight of a node in the page */
	uint64_t omitted;
	uint32_t nodes;
	const struct profile *baseline; /* NULL: nothing is compared */
	const struct profile *profile;
	size_t event;
	enum folded_group by;
};

static void put_text(FILE *to, const char *name, const char *value)
{
	fprintf(to, "\"%s\":", name);
	json_text_put(to, value);
	fputc(',', to);
}

static void put_number(FILE *to, const char *name, uint64_t value)
{
	fprintf(to, "\"%s\":%" PRIu64 ",", name, value);
}

static void put_baseline(FILE *to, const struct profile *baseline)
{
	const struct profile_event *event = profile_event(baseline, profile_event_chosen(baseline));

	put_number(to, "before", event->weight);
	put_number(to, "samplesBefore", event->samples);
}

static void put_about(const struct writer *writer)
{
	const struct profile *profile = writer->profile;
	const struct perf_data_summary *summary = profile_summary(profile);
	const struct profile_event *event = profile_event(profile, writer->event);
	FILE *to = writer->to;

	fputs("\"about\":{", to);
	put_text(to, "event", event->name);
	put_text(to, "release", summary->release);
	put_text(to, "hostname", summary->hostname);
	put_text(to, "arch", summary->arch);
	put_text(to, "command", summary->command_line);
	put_text(to, "note", profile_note(profile));
	put_text(to, "times", profile_times(profile));
	put_text(to, "unit", profile_unit_name(event->unit));
	put_number(to, "frequency", event->frequency_changed ? 0 : event->frequency);
	put_number(to, "vcpus", summary->cpus);
	put_number(to, "samples", event->samples);
	put_number(to, "weight", event->weight);
	put_number(to, "lost", profile_lost(profile));
	put_number(to, "skipped", summary->skipped);
	put_number(to, "omitted", writer->omitted);
	if (writer->baseline)
		put_baseline(to, writer->baseline);
	fprintf(to, "\"cutOff\":%s},\n", summary->cut_off ? "true" : "false");
}

/* Image names repeat: compressing the file removes that overhead. */
static void put_frames(FILE *to, const struct flame_tree *tree)
{
	fputs("\"frames\":[", to);
	for (size_t i = 0; i < tree->frame_count; i++) {
		fputs(i ? ",\n[" : "\n[", to);
		json_text_put(to, tree->list[i]->name);
		fputc(',', to);
		json_text_put(to, tree->list[i]->image);
		fprintf(to, ",%d]", tree->list[i]->kind);
	}
	fputs("],\n", to);
}

/* Recursion is as deep as a call chain (PROFILE_DEPTH_MAX). Returns the number of nodes, whose
 * weights go to WEIGHTS unless it is NULL. */
static size_t list_weights(const struct flame_node *node, uint64_t *weights)
{
	size_t count = 1;

	if (weights)
		*weights = node->weight + node->before;
	for (const struct flame_node *child = node->child; child; child = child->sibling)
		count += list_weights(child, weights ? weights + count : NULL);
	return count;
}

static int heaviest_first(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a > b ? -1 : a < b;
}

/* Finds the smallest weight with which at most NODES_MAX nodes are left. 0 or -ENOMEM. */
static int find_least(const struct flame_tree *tree, uint64_t *least)
{
	size_t count = list_weights(tree->root, NULL);
	uint64_t *weights;

	*least = 0;
	if (count <= NODES_MAX)
		return 0;
	weights = malloc(count * sizeof(*weights));
	if (!weights)
		return -ENOMEM;
	list_weights(tree->root, weights);
	qsort(weights, count, sizeof(*weights), heaviest_first);
	*least = weights[NODES_MAX] + 1;
	free(weights);
	return 0;
}

/* A node that is omitted has only callees that are omitted, too. */
static void number_nodes(struct writer *writer, struct flame_node *node)
{
	node->omitted = node->parent &&
			(node->parent->omitted || node->weight + node->before < writer->least);
	if (node->omitted)
		writer->omitted++;
	node->number = node->omitted ? node->parent->number : writer->nodes++;
	for (struct flame_node *child = node->child; child; child = child->sibling)
		number_nodes(writer, child);
}

static void put_node(const struct writer *writer, const struct flame_node *node)
{
	bool any = false;

	fprintf(writer->to, "[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64, node->frame->index,
		node->weight, node->samples, node->self);
	if (writer->baseline)
		fprintf(writer->to, ",%" PRIu64 ",%" PRIu64, node->before, node->self_before);
	for (const struct flame_node *child = node->child; child; child = child->sibling) {
		if (child->omitted)
			continue;
		fputs(any ? "," : ",[", writer->to);
		put_node(writer, child);
		any = true;
	}
	fputs(any ? "]]" : "]", writer->to);
}

/* All but processes: a function that only calls others has no self time. */
static void put_functions(FILE *to, const struct flame_function *functions, size_t count)
{
	bool any = false;

	fputs("\"functions\":[", to);
	for (size_t i = 0; i < count; i++) {
		if (functions[i].frame->kind == FLAME_PROCESS)
			continue;
		fprintf(to, "%s[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", any ? "," : "",
			functions[i].frame->index, functions[i].self, functions[i].total,
			functions[i].self_before);
		any = true;
	}
	fputs("],\n", to);
}

static int put_data(struct writer *writer, const struct flame_tree *tree,
		    const struct flame_function *functions)
{
	FILE *to = writer->to;
	int error = find_least(tree, &writer->least);

	if (error)
		return error;
	number_nodes(writer, tree->root);
	fputc('{', to);
	put_about(writer);
	put_frames(to, tree);
	put_functions(to, functions, tree->frame_count);
	error = flame_graph_put_times(writer->profile, tree, to);
	fputs("\"tree\":", to);
	put_node(writer, tree->root);
	fputc('}', to);
	return error;
}

static int put_event(const struct writer *settings, size_t event)
{
	struct writer writer = *settings;
	struct flame_function *functions = NULL;
	struct flame_tree tree;
	int error;

	writer.event = event;
	error = flame_tree_build(&tree, writer.baseline, writer.profile, event, writer.by);
	if (!error)
		functions = flame_tree_functions(&tree);
	error = functions ? put_data(&writer, &tree, functions) : -ENOMEM;
	flame_tree_free(&tree);
	free(functions);
	return error;
}

/* Those with samples; one if none has. */
static int put_events(const struct writer *writer)
{
	const struct profile *profile = writer->profile;
	bool any = false;
	int error = 0;

	fputc('[', writer->to);
	for (size_t i = 0; i < profile_event_count(profile) && !error; i++) {
		if (!profile_event(profile, i)->samples)
			continue;
		fputs(any ? ",\n" : "", writer->to);
		error = put_event(writer, i);
		any = true;
	}
	if (!any)
		error = put_event(writer, profile_event_chosen(profile));
	fputc(']', writer->to);
	return error;
}

static int write_graph(const struct writer *writer)
{
	const char *page = flame_graph_page_start;
	size_t size = (size_t)(flame_graph_page_end - flame_graph_page_start);
	const char *mark = memmem(page, size, MARK, strlen(MARK));
	FILE *to = writer->to;

	if (!mark)
		return error_set(-EINVAL,
				 "the flame graph page in this program is damaged; build it again");
	fwrite(page, 1, (size_t)(mark - page), to);
	if (put_events(writer))
		return error_set(-ENOMEM, "no memory for the flame graph");
	fwrite(mark + strlen(MARK), 1, size - (size_t)(mark - page) - strlen(MARK), to);
	if (fflush(to) || ferror(to))
		return error_set(-EIO, "cannot write the flame graph: %s", strerror(errno));
	return 0;
}

int flame_graph_write(const struct profile *profile, enum folded_group by, FILE *to)
{
	return write_graph(&(struct writer){ .to = to, .profile = profile, .by = by });
}

int flame_graph_diff_write(const struct profile *baseline, const struct profile *profile, FILE *to)
{
	return write_graph(&(struct writer){
		.to = to, .baseline = baseline, .profile = profile, .by = FOLDED_PLAIN });
}
