/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/perf_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"

bool script_sample_is_user(const struct script_sample *sample)
{
	const struct script_frame *leaf = &sample->frames[0];

	return sample->depth && !(leaf->address >> 63) && strncmp(leaf->image, "[kernel", 7) != 0 &&
	       strncmp(leaf->image, "[guest.kernel", 13) != 0;
}

/* Cuts off the last word of LINE and the blanks around it; NULL if the line has only one word. */
static char *cut_last_word(char *line)
{
	char *end = line + strlen(line), *word;

	while (end > line && (end[-1] == ' ' || end[-1] == '\n'))
		*--end = '\0';
	word = strrchr(line, ' ');
	if (!word)
		return NULL;
	for (end = word; end > line && end[-1] == ' '; end--)
		;
	*end = '\0';
	return word + 1;
}

/* "COMM TID PERIOD", where COMM may contain blanks. */
static bool read_heading(char *line, struct script_sample *sample)
{
	const char *period = cut_last_word(line), *tid = period ? cut_last_word(line) : NULL;

	if (!tid)
		return false;
	*sample = (struct script_sample){ .weight = strtod(period, NULL),
					  .tid = (unsigned int)strtoul(tid, NULL, 10) };
	snprintf(sample->comm, sizeof(sample->comm), "%s", line + strspn(line, " "));
	return sample->weight > 0;
}

/* "\tADDRESS SYMBOL (IMAGE)", where SYMBOL may contain anything. */
static bool read_frame(char *line, struct script_frame *frame)
{
	char *symbol, *image = strrchr(line, '('), *end = strrchr(line, ')');

	frame->address = strtoull(line, &symbol, 16);
	if (!image || !end || image <= symbol + 1)
		return false;
	image[-1] = *end = '\0';
	snprintf(frame->symbol, sizeof(frame->symbol), "%s", symbol + 1);
	snprintf(frame->image, sizeof(frame->image), "%s", image + 1);
	return true;
}

void each_line(const char *command, void (*see)(void *context, char *line), void *context)
{
	FILE *output = popen(command, "r");
	char line[4096];

	REQUIRE(output);
	while (fgets(line, sizeof(line), output))
		see(context, line);
	CHECK_EQUAL(pclose(output), 0);
}

struct script {
	struct script_sample sample;
	void (*see)(void *context, const struct script_sample *sample);
	void *context;
};

static void read_line(void *context, char *line)
{
	struct script *script = context;
	struct script_sample *sample = &script->sample;

	if (*line == '\n') {
		script->see(script->context, sample);
		sample->depth = 0;
	} else if (*line == '\t') {
		if (sample->depth < SCRIPT_DEPTH_MAX &&
		    read_frame(line, &sample->frames[sample->depth]))
			sample->depth++;
	} else if (!read_heading(line, sample)) {
		FAIL_TEST("unexpected line of perf script: %s", line);
	}
}

void perf_script_read(const char *environment, const char *file, const char *options,
		      void (*see)(void *context, const struct script_sample *sample), void *context)
{
	struct script script = { .see = see, .context = context };
	char command[1024];

	snprintf(command, sizeof(command),
		 "%s perf script -i %s --no-inline -F comm,tid,period,ip,sym,dso %s 2>/dev/null",
		 environment, file, options);
	each_line(command, read_line, &script);
}
