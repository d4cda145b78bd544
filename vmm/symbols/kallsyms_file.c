/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/kallsyms_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/read_file.h"
#include "vmm/symbols/symbol_list.h"

/* A kernel's file has about 10 MiB. */
#define FILE_SIZE_MAX (512ul << 20)

/* The types that perf reads (symbol_type__filter). */
static bool is_text_or_data(char type)
{
	return type && strchr("TWDB", toupper((unsigned char)type));
}

static char *skip_blanks(char *at)
{
	while (*at == ' ' || *at == '\t')
		at++;
	return at;
}

/* Terminates the word at AT and returns the next one. */
static char *cut_word(char *at)
{
	char *end = at + strcspn(at, " \t\r");

	if (*end)
		*end++ = '\0';
	return skip_blanks(end);
}

/* Parses a line into *SYMBOL, whose strings point into it. */
static bool parse_line(char *line, struct listed_symbol *symbol)
{
	char *at, *module;

	if (!isxdigit((unsigned char)*line))
		return false;
	errno = 0;
	*symbol = (struct listed_symbol){ .start = strtoull(line, &at, 16) };
	if (errno || (*at != ' ' && *at != '\t'))
		return false;
	at = skip_blanks(at);
	symbol->type = *at;
	if (!isalpha((unsigned char)*at) || (at[1] != ' ' && at[1] != '\t'))
		return false;
	at = skip_blanks(at + 1);
	symbol->name = at;
	module = cut_word(at);
	if (*module == '[') {
		symbol->module = module + 1;
		module[strcspn(module, "]")] = '\0';
	}
	return *symbol->name;
}

static int parse(struct symbol_list *list, const char *path, char *text)
{
	struct listed_symbol symbol;
	uint64_t addresses = 0;
	unsigned int number = 0;
	int error;

	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		number++;
		if (!*line)
			continue;
		if (!parse_line(line, &symbol))
			return error_set(
				-EINVAL,
				"%s, line %u: not of the form \"ADDRESS TYPE NAME [MODULE]\"; "
				"is this a copy of /proc/kallsyms?",
				path, number);
		addresses |= symbol.start;
		if (!is_text_or_data(symbol.type) || *symbol.name == '$')
			continue;
		error = symbol_list_add(list, &symbol);
		if (error)
			return error;
	}
	if (!list->count)
		return error_set(-ENODATA, "%s has no function symbols", path);
	if (!addresses)
		return error_set(
			-EPERM,
			"%s has zeros for all addresses: it was read without permission to see them "
			"(kernel.kptr_restrict)",
			path);
	return 0;
}

/* PATH may be a FIFO, as in --kallsyms <(ssh guest cat /proc/kallsyms). */
static int read_path(const char *path, char **text, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = read_descriptor(fd, FILE_SIZE_MAX, text, size);
	close(fd);
	return error;
}

int kallsyms_file_load(struct symbols **symbols, const char *path)
{
	struct symbol_list list = { 0 };
	size_t size;
	char *text;
	int error = read_path(path, &text, &size);

	if (error)
		return error_set(error, "cannot read the kernel symbols in %s: %s", path,
				 strerror(-error));
	error = strlen(text) == size
			? parse(&list, path, text)
			: error_set(-EINVAL,
				    "%s is not a text file; is it a copy of /proc/kallsyms?", path);
	if (error)
		symbol_list_free(&list);
	else
		error = symbol_list_finish(&list, symbols);
	free(text);
	return error;
}
