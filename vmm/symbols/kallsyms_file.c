/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/kallsyms_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/symbols/symbol_list.h"

/* A kernel's file has some 10 MiB; anything much larger is something else. */
#define LARGEST_FILE (512UL << 20)

/* The whole of PATH with a NUL behind it, to be freed. Files in /proc tell no size. */
static int read_whole(const char *path, char **text, size_t *size)
{
	FILE *file = fopen(path, "re");
	size_t capacity = 1 << 20;
	char *buffer = NULL, *grown;
	int error = file ? 0 : -errno;

	*size = 0;
	while (!error) {
		grown = realloc(buffer, capacity + 1);
		if (!grown || capacity > LARGEST_FILE) {
			error = grown ? -EFBIG : -ENOMEM;
			buffer = grown ? grown : buffer;
			break;
		}
		buffer = grown;
		*size += fread(buffer + *size, 1, capacity - *size, file);
		if (*size < capacity) {
			error = ferror(file) ? -EIO : 0;
			break;
		}
		capacity *= 2;
	}
	if (file)
		fclose(file);
	if (error) {
		free(buffer);
		return error_set(error, "cannot read the kernel symbols in %s: %s", path,
				 strerror(-error));
	}
	buffer[*size] = '\0';
	*text = buffer;
	return 0;
}

/* The types that perf takes (symbol_type__filter). */
static bool is_wanted(char type)
{
	return type && strchr("TWDB", toupper((unsigned char)type));
}

static char *skip_blanks(char *at)
{
	while (*at == ' ' || *at == '\t')
		at++;
	return at;
}

/* Ends the word at AT and returns what follows it. */
static char *cut_word(char *at)
{
	char *end = at + strcspn(at, " \t\r");

	if (*end)
		*end++ = '\0';
	return skip_blanks(end);
}

/* One line into *SYMBOL, whose strings point into it. */
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
		if (!is_wanted(symbol.type) || *symbol.name == '$')
			continue;
		error = symbol_list_add(list, &symbol);
		if (error)
			return error;
	}
	if (!list->count)
		return error_set(-ENODATA, "%s holds no function symbols", path);
	if (!addresses)
		return error_set(
			-EPERM,
			"%s holds no addresses, only zeroes: it was read without the right to see them "
			"(kernel.kptr_restrict)",
			path);
	return 0;
}

int kallsyms_file_load(struct symbols **symbols, const char *path)
{
	struct symbol_list list = { 0 };
	size_t size;
	char *text = NULL;
	int error = read_whole(path, &text, &size);

	if (error)
		return error;
	error = text && strlen(text) == size
			? parse(&list, path, text)
			: error_set(-EINVAL, "%s is no text file; is it a copy of /proc/kallsyms?",
				    path);
	if (error)
		symbol_list_free(&list);
	else
		error = symbol_list_finish(&list, symbols);
	free(text);
	return error;
}
