/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/option_table.h"

#include <argp.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "shared/error.h"
#include "shared/parse_number.h"

/* A row without a letter has this key plus its number in the table. */
#define KEY_FIRST 256

int option_number(const char *name, const char *text, unsigned int low, unsigned int high,
		  unsigned int *number)
{
	uint64_t value = low;
	const char *end = parse_decimal(text, high, &value);

	if (!end || *end || value < low)
		return error_set(-EINVAL, "%s %s: it must be a number from %u to %u", name, text,
				 low, high);
	*number = (unsigned int)value;
	return 0;
}

static int read_number(const struct option_row *row, const char *text, unsigned int *number)
{
	char name[64];

	if (!text) {
		*number = row->low;
		return 0;
	}
	snprintf(name, sizeof(name), "--%s", row->name);
	return option_number(name, text, row->low, row->high, number);
}

static int read_size(const struct option_row *row, const char *text, uint64_t *bytes)
{
	return parse_size(text, bytes)
		       ? error_set(-EINVAL, "--%s %s: it must be a size like 512M or 2G", row->name,
				   text)
		       : 0;
}

static int read_time(const struct option_row *row, const char *text, uint64_t *time)
{
	return parse_duration(text, time)
		       ? error_set(-EINVAL, "--%s %s: it must be a time like 5s or 500ms",
				   row->name, text)
		       : 0;
}

/* Insertions, deletions, replacements and swaps that turn LEFT into RIGHT; large for long
 * words. */
static size_t word_distance(const char *left, const char *right)
{
	size_t rows[3][33], width = strlen(right), height = strlen(left);

	if (width >= sizeof(rows[0]) / sizeof(rows[0][0]) || height > width + 2)
		return SIZE_MAX;
	for (size_t j = 0; j <= width; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= height; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= width; j++) {
			row[j] = above[j - 1] + (left[i - 1] != right[j - 1]);
			row[j] = MIN(row[j], 1 + MIN(above[j], row[j - 1]));
			if (i > 1 && j > 1 && left[i - 1] == right[j - 2] &&
			    left[i - 2] == right[j - 1])
				row[j] = MIN(row[j], before[j - 2] + 1);
		}
	}
	return rows[height % 3][width];
}

const char *option_closest(const char *text, const char *const *names)
{
	const char *closest = NULL;
	size_t best = 3;

	for (; *names; names++) {
		size_t distance = word_distance(text, *names);

		if (distance < best && 2 * distance < strlen(*names)) {
			best = distance;
			closest = *names;
		}
	}
	return closest;
}

int option_choice(const char *what, const char *text, const char *const *names)
{
	const char *closest = option_closest(text, names);
	char list[128] = "";
	size_t length = 0;

	for (int i = 0; names[i]; i++) {
		if (!strcmp(text, names[i]))
			return i;
		if (length < sizeof(list))
			length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
						   i ? ", " : "", names[i]);
	}
	return error_set(-EINVAL, "%s %s: it must be one of %s%s%s%s", what, text, list,
			 closest ? "; did you mean " : "", closest ? closest : "",
			 closest ? "?" : "");
}

static int read_choice(const struct option_row *row, const char *text, void *choice)
{
	char name[64];
	int index;

	snprintf(name, sizeof(name), "--%s", row->name);
	index = option_choice(name, text, row->choices);
	if (index < 0)
		return index;
	memcpy(choice, &index, sizeof(index));
	return 0;
}

static int read_row(const struct option_row *row, void *target, char *text)
{
	void *variable = (char *)target + row->offset;

	switch (row->kind) {
	case OPTION_TEXT:
		*(const char **)variable = text;
		return 0;
	case OPTION_SET:
	case OPTION_CLEAR:
		*(bool *)variable = row->kind == OPTION_SET;
		return 0;
	case OPTION_NUMBER:
		return read_number(row, text, variable);
	case OPTION_SIZE:
		return read_size(row, text, variable);
	case OPTION_TIME:
		return read_time(row, text, variable);
	case OPTION_CHOICE:
		return read_choice(row, text, variable);
	case OPTION_PARSE:
		return row->parse(target, text);
	}
	return 0;
}

/* Ends the program on an error. */
static void check(struct argp_state *state, int error)
{
	state->err_stream = stderr;
	if (error == -EINVAL)
		argp_error(state, "%s", error_message());
	else if (error)
		argp_failure(state, EXIT_FAILURE, 0, "%s", error_message());
}

static int key_of(const struct option_row *row, int number)
{
	return row->letter ? row->letter : KEY_FIRST + number;
}

static void check_all(struct argp_state *state, const struct option_command *command)
{
	for (const struct option_group *group = command->groups; group->rows; group++)
		if (group->check)
			check(state, group->check(group->target));
}

static void parse_word(struct argp_state *state, const struct option_command *command, char *text)
{
	check(state, command->word ? command->word(command->context, text)
				   : error_set(-EINVAL, "'%s' is not an option%s%s", text,
					       command->hint ? "; " : "",
					       command->hint ? command->hint : ""));
}

/* Ends the program after getopt's message about the last word that it read. */
static void suggest_option(struct argp_state *state, const struct option_command *command)
{
	const char *names[128], *word = state->argv[state->next - 1], *closest = NULL;
	char name[32] = "";
	size_t count = 0;

	for (const struct option_group *group = command->groups; group->rows; group++)
		for (const struct option_row *row = group->rows; row->name; row++)
			if (count + 1 < sizeof(names) / sizeof(names[0]))
				names[count++] = row->name;
	names[count] = NULL;
	if (sscanf(word, "--%31[^=]", name) == 1)
		closest = option_closest(name, names);
	state->err_stream = stderr;
	if (closest && strcmp(closest, name) != 0)
		argp_error(state, "did you mean --%s?", closest);
	argp_state_help(state, stderr, ARGP_HELP_STD_ERR);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	const struct option_command *command = state->input;
	int number = 0;

	/* Without a stream argp calls back after a wrong option, before it ends the program. */
	if (key == ARGP_KEY_INIT)
		state->err_stream = NULL;
	if (key == ARGP_KEY_ERROR)
		suggest_option(state, command);
	if (key == ARGP_KEY_ARG) {
		parse_word(state, command, text);
		return 0;
	}
	if (key == ARGP_KEY_END)
		check_all(state, command);
	for (const struct option_group *group = command->groups; group->rows; group++)
		for (const struct option_row *row = group->rows; row->name; row++)
			if (key == key_of(row, number++)) {
				check(state, read_row(row, group->target, text));
				return 0;
			}
	return ARGP_ERR_UNKNOWN;
}

/* The rows as argp options, for the caller to free. NULL without memory. */
static struct argp_option *make_options(const struct option_command *command)
{
	size_t count = 1;
	struct argp_option *options, *next;
	int number = 0, group_number = 0;

	for (const struct option_group *group = command->groups; group->rows; group++) {
		count++;
		for (const struct option_row *row = group->rows; row->name; row++)
			count++;
	}
	options = next = calloc(count, sizeof(*options));
	for (const struct option_group *group = command->groups; options && group->rows; group++) {
		group_number++;
		if (group->title)
			*next++ =
				(struct argp_option){ .doc = group->title, .group = group_number };
		for (const struct option_row *row = group->rows; row->name; row++)
			*next++ = (struct argp_option){
				.name = row->name,
				.key = key_of(row, number++),
				.arg = row->argument,
				.flags = row->optional ? OPTION_ARG_OPTIONAL : 0,
				.doc = row->help,
				.group = group_number,
			};
	}
	return options;
}

int option_table_parse(const struct option_command *command, int argc, char **argv)
{
	static char name[64];
	struct argp_option *options = make_options(command);
	const struct argp argp = {
		.options = options, .parser = parse, .args_doc = command->words, .doc = command->doc
	};
	struct option_command input = *command;

	if (!options)
		return error_set(-ENOMEM, "no memory for the options");
	snprintf(name, sizeof(name), "%s", command->name);
	argv[0] = name; /* argp begins its messages with it */
	argp_err_exit_status = OPTION_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &input);
	free(options);
	return 0;
}
