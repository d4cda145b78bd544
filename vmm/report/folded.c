/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/folded.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

struct line {
	char *text;
	uint64_t samples[2]; /* of the baseline, of the profile */
};

const char *folded_frame_name(const struct profile_frame *frame, char *text, size_t size)
{
	if (frame->symbol)
		return frame->symbol;
	if (*frame->image == '[')
		return frame->image;
	snprintf(text, size, "[%s]", frame->image);
	return text;
}

const char *folded_comm(const struct profile_stack *stack, char *text, size_t size)
{
	if (*stack->comm)
		return stack->comm;
	if (!stack->pid || stack->pid == UINT32_MAX)
		return "guest";
	snprintf(text, size, "pid %u", stack->pid);
	return text;
}

const char *folded_group(const struct profile_stack *stack, enum folded_group by)
{
	if (by == FOLDED_PLAIN)
		return NULL;
	if (!*stack->cgroup)
		return "[unknown cgroup]";
	if (by == FOLDED_BY_CGROUP)
		return stack->cgroup;
	return *stack->container ? stack->container : "[no container]";
}

/* Writes a name without the separator. */
static void put_name(FILE *to, const char *name)
{
	for (; *name; name++)
		fputc(*name == ';' ? ':' : *name, to);
}

static char *make_line(const struct profile_stack *stack, enum folded_group by)
{
	const char *group = folded_group(stack, by);
	char *text = NULL, name[256];
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	if (group) {
		put_name(to, group);
		fputc(';', to);
	}
	put_name(to, folded_comm(stack, name, sizeof(name)));
	for (size_t i = stack->depth; i-- > 0;) {
		fputc(';', to);
		put_name(to, folded_frame_name(stack->frames[i], name, sizeof(name)));
	}
	if (fclose(to)) {
		free(text);
		return NULL;
	}
	return text;
}

static int by_text(const void *left, const void *right)
{
	return strcmp(((const struct line *)left)->text, ((const struct line *)right)->text);
}

/* SCALE is for samples of the baseline; negative: there is none. */
static void write_lines(const struct line *lines, size_t count, double scale, FILE *to)
{
	uint64_t before = 0, samples = 0;

	for (size_t i = 0; i < count; i++) {
		before += lines[i].samples[0];
		samples += lines[i].samples[1];
		if (i + 1 < count && !strcmp(lines[i].text, lines[i + 1].text))
			continue;
		fputs(lines[i].text, to);
		if (scale >= 0)
			fprintf(to, " %.0f", (double)before * scale);
		fprintf(to, " %" PRIu64 "\n", samples);
		before = samples = 0;
	}
}

/* Appends the lines of PROFILE to LINES, their samples as number WHICH. Returns how many. */
static size_t make_lines(struct line *lines, const struct profile *profile, enum folded_group by,
			 int which)
{
	size_t made = 0;

	for (; made < profile_stack_count(profile); made++) {
		const struct profile_stack *stack = profile_stack(profile, made);

		lines[made].text = make_line(stack, by);
		if (!lines[made].text)
			break;
		lines[made].samples[which] = stack->samples;
	}
	return made;
}

/* BASELINE may be NULL. */
static int write_folded(const struct profile *baseline, const struct profile *profile,
			enum folded_group by, FILE *to)
{
	size_t before = baseline ? profile_stack_count(baseline) : 0;
	size_t count = profile_stack_count(profile) + before, made = 0;
	struct line *lines = calloc(count + 1, sizeof(*lines));
	double scale = baseline ? 1 : -1;
	int error = 0;

	if (before)
		scale = (double)profile_samples(profile) / (double)profile_samples(baseline);
	if (lines && before)
		made = make_lines(lines, baseline, by, 0);
	if (lines && made == before)
		made += make_lines(lines + made, profile, by, 1);
	if (!lines || made < count) {
		error = error_set(-ENOMEM, "no memory for the folded stacks");
	} else {
		qsort(lines, count, sizeof(*lines), by_text);
		write_lines(lines, count, scale, to);
		if (fflush(to) || ferror(to))
			error = error_set(-EIO, "cannot write the folded stacks: %s",
					  strerror(errno));
	}
	for (size_t i = 0; i < made; i++)
		free(lines[i].text);
	free(lines);
	return error;
}

int folded_write(const struct profile *profile, enum folded_group by, FILE *to)
{
	return write_folded(NULL, profile, by, to);
}

int folded_diff_write(const struct profile *baseline, const struct profile *profile, FILE *to)
{
	return write_folded(baseline, profile, FOLDED_PLAIN, to);
}
