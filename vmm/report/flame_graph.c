/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/flame_graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/json_text.h"

/*
 * Frames narrower than this part of the whole are left out: they stay invisible even after zooming.
 */
#define NARROWEST_PART 20000

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
	uint64_t least; /* smallest weight of a frame in the graph */
	uint64_t omitted;
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

static const struct profile_event *event_of(const struct profile *profile)
{
	return profile_event(profile, profile_event_chosen(profile));
}

static void put_about(const struct writer *writer, const struct profile *profile)
{
	const struct perf_data_summary *summary = profile_summary(profile);
	const struct profile_event *event = event_of(profile);
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

static bool is_kept(const struct writer *writer, const struct flame_node *node)
{
	return node->weight >= writer->least;
}

/* Recursion is as deep as a call chain (PROFILE_DEPTH_MAX). */
static uint64_t count_nodes(const struct flame_node *node)
{
	uint64_t count = 1;

	for (const struct flame_node *child = node->child; child; child = child->sibling)
		count += count_nodes(child);
	return count;
}

static uint64_t count_omitted(const struct writer *writer, const struct flame_node *node)
{
	uint64_t count = 0;

	for (const struct flame_node *child = node->child; child; child = child->sibling)
		count += is_kept(writer, child) ? count_omitted(writer, child) : count_nodes(child);
	return count;
}

static void put_node(const struct writer *writer, const struct flame_node *node)
{
	bool any = false;

	fprintf(writer->to, "[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64, node->frame->index,
		node->weight, node->samples, node->self);
	for (const struct flame_node *child = node->child; child; child = child->sibling) {
		if (!is_kept(writer, child))
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
		fprintf(to, "%s[%u,%" PRIu64 ",%" PRIu64 "]", any ? "," : "",
			functions[i].frame->index, functions[i].self, functions[i].total);
		any = true;
	}
	fputs("],\n", to);
}

static void put_data(const struct profile *profile, const struct flame_tree *tree,
		     const struct flame_function *functions, FILE *to)
{
	struct writer writer = { .to = to, .least = event_of(profile)->weight / NARROWEST_PART };

	writer.omitted = count_omitted(&writer, tree->root);
	fputc('{', to);
	put_about(&writer, profile);
	put_frames(to, tree);
	put_functions(to, functions, tree->frame_count);
	fputs("\"tree\":", to);
	put_node(&writer, tree->root);
	fputc('}', to);
}

static int write_page(const char *page, size_t size, const char *mark,
		      const struct profile *profile, enum folded_group by, FILE *to)
{
	struct flame_function *functions = NULL;
	struct flame_tree tree;
	int error = flame_tree_build(&tree, profile, by);

	if (!error)
		functions = flame_tree_functions(&tree);
	if (functions) {
		fwrite(page, 1, (size_t)(mark - page), to);
		put_data(profile, &tree, functions, to);
		fwrite(mark + strlen(MARK), 1, size - (size_t)(mark - page) - strlen(MARK), to);
	}
	error = functions ? 0 : error_set(-ENOMEM, "no memory for the flame graph");
	flame_tree_free(&tree);
	free(functions);
	return error;
}

int flame_graph_write(const struct profile *profile, enum folded_group by, FILE *to)
{
	const char *page = flame_graph_page_start;
	size_t size = (size_t)(flame_graph_page_end - flame_graph_page_start);
	const char *mark = memmem(page, size, MARK, strlen(MARK));
	int error;

	if (!mark)
		return error_set(-EINVAL,
				 "the flame graph page in this program is damaged; build it again");
	error = write_page(page, size, mark, profile, by, to);
	if (error)
		return error;
	if (fflush(to) || ferror(to))
		return error_set(-EIO, "cannot write the flame graph: %s", strerror(errno));
	return 0;
}
