/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/flame_page.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frame {
	char name[128];
	unsigned int kind;
};

struct flame_page {
	struct frame *frames;
	size_t frame_count;
	char *tree; /* "[frame,weight,samples,self,[...]]", where each frame contains its callees */
};

/* A query on the tree. */
struct question {
	const struct flame_page *page;
	const char *process, *name; /* NULL: any process */
	enum flame_page_kind kind;
	unsigned long samples;
};

/*
 * ["name","image",kind] on a line of its own; quotes in names are escaped, long names are
 * truncated.
 */
static bool read_frame(const char *line, struct frame *frame)
{
	const char *name = line + 2, *image, *kind;

	if (strncmp(line, "[\"", 2) != 0)
		return false;
	image = strstr(name, "\",\"");
	kind = image ? strchr(image + 3, '"') : NULL;
	if (!kind)
		return false;
	snprintf(frame->name, sizeof(frame->name), "%.*s", (int)(image - name), name);
	frame->kind = (unsigned int)strtoul(kind + 2, NULL, 10);
	return true;
}

static bool read_frames(struct flame_page *page, const char *lines)
{
	struct frame frame;

	for (const char *line = strchr(lines, '\n'); line && read_frame(line + 1, &frame);
	     line = strchr(line + 1, '\n')) {
		struct frame *grown =
			realloc(page->frames, (page->frame_count + 1) * sizeof(frame));

		if (!grown)
			return false;
		page->frames = grown;
		page->frames[page->frame_count++] = frame;
	}
	return page->frame_count;
}

struct flame_page *flame_page_read(const char *text)
{
	const char *frames = strstr(text, "\"frames\":["), *tree = strstr(text, "\"tree\":[");
	struct flame_page *page = calloc(1, sizeof(*page));

	if (page && frames && tree && read_frames(page, frames))
		page->tree = strndup(strchr(tree, '['), strcspn(tree, "}"));
	if (!page || !page->tree) {
		flame_page_free(page);
		return NULL;
	}
	return page;
}

void flame_page_free(struct flame_page *page)
{
	if (!page)
		return;
	free(page->frames);
	free(page->tree);
	free(page);
}

static bool is_answer(const struct question *question, const struct frame *frame,
		      unsigned int depth)
{
	if (!question->name)
		return depth == 1;
	return depth > 1 && frame->kind == question->kind && !strcmp(frame->name, question->name);
}

/*
 * Reads the node at AT, either "[frame,weight,samples,self]" or with its children,
 * "[frame,weight,samples,self,[...]]". Returns the position after it. COUNTED: an enclosing frame
 * was already counted, or belongs to another process.
 */
static const char *walk(struct question *question, const char *at, unsigned int depth, bool counted)
{
	const struct frame *frame;
	unsigned long samples;
	unsigned int index;
	int length = 0;

	if (sscanf(at, "[%u,%*u,%lu,%*u%n", &index, &samples, &length) != 2 || !length ||
	    index >= question->page->frame_count)
		return at + strlen(at);
	frame = &question->page->frames[index];
	if (depth == 1 && question->process && strcmp(frame->name, question->process) != 0)
		counted = true;
	if (!counted && is_answer(question, frame, depth)) {
		question->samples += samples;
		counted = true;
	}
	at += length;
	if (*at == ',') {
		for (at++; *at == '[' || *at == ',';)
			at = walk(question, at + 1, depth + 1, counted);
		at += *at == ']';
	}
	return at + (*at == ']');
}

static unsigned long ask(struct question question)
{
	walk(&question, question.page->tree, 0, false);
	return question.samples;
}

unsigned long flame_page_samples(const struct flame_page *page, const char *process)
{
	return ask((struct question){ .page = page, .process = process });
}

unsigned long flame_page_samples_in(const struct flame_page *page, const char *process,
				    const char *name, enum flame_page_kind kind)
{
	return ask(
		(struct question){ .page = page, .process = process, .name = name, .kind = kind });
}
