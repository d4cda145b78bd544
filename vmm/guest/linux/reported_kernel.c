/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/reported_kernel.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "shared/error.h"
#include "vmm/guest/linux/kallsyms.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define PAGE      4096u
#define NO_MODULE UINT16_MAX
/* Module of a line that only marks the end of the symbol before it. */
#define OTHER_MODULE (UINT16_MAX - 1)
/* Bytes of struct elf64_note and the name "GNU", before the build id. */
#define NOTE_HEAD 16u

/* A line of kallsyms. */
struct line {
	uint64_t address;
	uint32_t name;   /* offset in the text */
	uint16_t length; /* of the name */
	uint16_t module; /* index in reader.modules, NO_MODULE or OTHER_MODULE */
	char type;
};

struct reader {
	struct span text;
	struct agent_module modules[AGENT_KERNEL_MODULES_MAX]; /* by name */
	uint64_t text_ends[AGENT_KERNEL_MODULES_MAX]; /* of the last function; 0: no function */
	size_t module_count;
	struct line *lines;
	size_t count, room;
	struct reported_kernel *reported;
};

static bool is_plain(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isgraph((unsigned char)name[i]) || name[i] == '[' || name[i] == ']')
			return false;
	return length;
}

/* Is MODULE plausible, and can its presence be checked? */
static bool is_valid(const struct agent_module *module)
{
	return memchr(module->name, '\0', sizeof(module->name)) &&
	       is_plain(module->name, strlen(module->name)) &&
	       module->start >= KERNEL_IMAGE_START && module->size && module->size <= UINT32_MAX &&
	       module->start + module->size > module->start && module->build_id_size &&
	       module->build_id_size <= sizeof(module->build_id) && module->note;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(((const struct agent_module *)left)->name,
		      ((const struct agent_module *)right)->name);
}

static int read_head(struct reader *reader, struct span table)
{
	struct reported_kernel *reported = reader->reported;
	struct agent_kernel head;
	uint64_t offset = sizeof(head);

	if (!span_copy(table, 0, &head, sizeof(head)) || head.modules > AGENT_KERNEL_MODULES_MAX ||
	    head.build_id_size > sizeof(head.build_id))
		return -EINVAL;
	reported->modules_hash = head.modules_hash;
	reported->build_id_size = head.build_id_size;
	memcpy(reported->build_id, head.build_id, sizeof(reported->build_id));
	for (uint32_t i = 0; i < head.modules; i++, offset += sizeof(struct agent_module)) {
		struct agent_module *module = &reader->modules[reader->module_count];

		if (!span_copy(table, offset, module, sizeof(*module)))
			return -EINVAL;
		reader->module_count += is_valid(module);
	}
	qsort(reader->modules, reader->module_count, sizeof(reader->modules[0]), by_name);
	return span_part(table, offset, table.size - offset, &reader->text) ? 0 : -EINVAL;
}

static uint16_t find_module(const struct reader *reader, const char *name, size_t length)
{
	struct agent_module key, *found;

	if (length >= sizeof(key.name))
		return OTHER_MODULE;
	memcpy(key.name, name, length);
	key.name[length] = '\0';
	found = bsearch(&key, reader->modules, reader->module_count, sizeof(key), by_name);
	return found ? (uint16_t)(found - reader->modules) : OTHER_MODULE;
}

/* Parses the hexadecimal number at *AT and moves *AT past it. */
static bool read_address(const char **at, const char *end, uint64_t *address)
{
	const char *begin = *at;

	*address = 0;
	for (; *at < end && isxdigit((unsigned char)**at); ++*at) {
		unsigned int digit = (unsigned char)**at;

		*address = *address << 4 |
			   (isdigit((int)digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
	}
	return *at > begin && *at - begin <= 16;
}

/* The index of the module in MODULE, "\t[NAME]", if LINE is code in it. */
static uint16_t module_of(const struct reader *reader, const struct line *line, const char *module,
			  const char *end)
{
	uint16_t index = OTHER_MODULE;

	if (end - module >= 4 && module[1] == '[' && end[-1] == ']' && strchr("tTwW", line->type))
		index = find_module(reader, module + 2, (size_t)(end - module) - 3);
	/* Init code, which is freed after the module starts, may be elsewhere. */
	if (index != OTHER_MODULE &&
	    line->address - reader->modules[index].start >= reader->modules[index].size)
		index = OTHER_MODULE;
	return index;
}

/* "ADDRESS TYPE NAME[\t[MODULE]]". False: LINE is to be skipped. */
static bool parse(const struct reader *reader, const char *at, const char *end, struct line *line)
{
	const char *name, *module;
	size_t length;

	if (!read_address(&at, end, &line->address) || end - at < 4 || at[0] != ' ' ||
	    at[2] != ' ' || !isalpha((unsigned char)at[1]))
		return false;
	line->type = at[1];
	name = at + 3;
	module = memchr(name, '\t', (size_t)(end - name));
	length = (size_t)((module ? module : end) - name);
	if (length >= KALLSYMS_NAME_MAX || !is_plain(name, length))
		return false;
	line->name = (uint32_t)(name - (const char *)reader->text.data);
	line->length = (uint16_t)length;
	line->module = module ? module_of(reader, line, module, end) : NO_MODULE;
	return true;
}

static size_t count_lines(struct span table)
{
	size_t count = 0;

	for (size_t i = 0; i < table.size; i++)
		count += table.data[i] == '\n';
	return count;
}

static int by_address(const void *left, const void *right)
{
	const struct line *one = left, *other = right;

	if (one->address != other->address)
		return one->address < other->address ? -1 : 1;
	return one->name < other->name ? -1 : one->name > other->name;
}

static int read_lines(struct reader *reader)
{
	const char *at = (const char *)reader->text.data, *end = at + reader->text.size, *next;

	/* An unterminated last line was truncated. */
	for (; at < end && (next = memchr(at, '\n', (size_t)(end - at))); at = next + 1) {
		struct line line;

		if (!parse(reader, at, next, &line))
			continue;
		if (reader->count == reader->room)
			return -EFBIG;
		reader->lines[reader->count++] = line;
	}
	if (reader->count)
		qsort(reader->lines, reader->count, sizeof(reader->lines[0]), by_address);
	return 0;
}

/*
 * A symbol ends at the next one; if that is of another module, at the latest with its page. Since
 * Linux 6.4 the memory of a module is in pieces (struct module_memory), with other modules between
 * them.
 */
static uint64_t end_of(const struct reader *reader, size_t *next, size_t index)
{
	const struct line *line = &reader->lines[index], *following;
	uint64_t page_end = (line->address / PAGE + 1) * PAGE;

	*next = *next > index ? *next : index;
	while (*next < reader->count && reader->lines[*next].address == line->address)
		++*next;
	if (*next == reader->count)
		return page_end;
	following = &reader->lines[*next];
	return following->module == line->module || following->address < page_end
		       ? following->address
		       : page_end;
}

static int add_symbol(struct reader *reader, const struct line *line, uint64_t end)
{
	struct reported_kernel *reported = reader->reported;
	const char *module = NULL;
	char name[KALLSYMS_NAME_MAX];
	bool per_cpu = line->address < KERNEL_IMAGE_START;

	memcpy(name, reader->text.data + line->name, line->length);
	name[line->length] = '\0';
	if (line->module != NO_MODULE) {
		module = reader->modules[line->module].name;
		reader->text_ends[line->module] = end;
	}
	return symbols_add(per_cpu ? reported->per_cpu : reported->symbols, line->address,
			   end - line->address, line->type, name, module);
}

static int add_symbols(struct reader *reader)
{
	struct reported_kernel *reported = reader->reported;
	size_t next = 0;
	int error = 0;

	reported->symbols = symbols_new();
	reported->per_cpu = symbols_new();
	if (!reported->symbols || !reported->per_cpu)
		return -ENOMEM;
	for (size_t i = 0; !error && i < reader->count; i++)
		if (reader->lines[i].module != OTHER_MODULE)
			error = add_symbol(reader, &reader->lines[i], end_of(reader, &next, i));
	if (!error && !symbols_count(reported->symbols) && !symbols_count(reported->per_cpu))
		error = -EINVAL;
	symbols_finish(reported->symbols);
	symbols_finish(reported->per_cpu);
	return error;
}

/* The end of the text that has symbols: the size in /proc/modules includes data. */
static uint64_t text_end(const struct reader *reader, size_t index)
{
	const struct agent_module *module = &reader->modules[index];
	uint64_t end = (reader->text_ends[index] + PAGE - 1) / PAGE * PAGE;

	return end < module->start + module->size ? end : module->start + module->size;
}

/* If two modules overlap, at least one is wrong, and it is unknown which. */
static bool is_apart(const struct reader *reader, size_t index)
{
	for (size_t i = 0; i < reader->module_count; i++)
		if (i != index && reader->text_ends[i] &&
		    reader->modules[i].start < text_end(reader, index) &&
		    reader->modules[index].start < text_end(reader, i))
			return false;
	return true;
}

static struct guest_module describe(const struct reader *reader, size_t index)
{
	const struct agent_module *from = &reader->modules[index];
	struct guest_module module = {
		.start = from->start,
		.size = text_end(reader, index) - from->start,
		.build_id_size = from->build_id_size,
		.build_id_gva = from->note + NOTE_HEAD,
	};

	memcpy(module.name, from->name, sizeof(module.name));
	memcpy(module.build_id, from->build_id, sizeof(module.build_id));
	return module;
}

static int add_modules(struct reader *reader)
{
	struct reported_kernel *reported = reader->reported;

	reported->modules = calloc(reader->module_count + 1, sizeof(*reported->modules));
	reported->missing = calloc(reader->module_count + 1, sizeof(*reported->missing));
	if (!reported->modules || !reported->missing)
		return -ENOMEM;
	for (size_t i = 0; i < reader->module_count; i++)
		if (reader->text_ends[i] && is_apart(reader, i))
			reported->modules[reported->module_count++] = describe(reader, i);
	return 0;
}

static int read_all(struct reader *reader, struct span table)
{
	int error = read_head(reader, table);

	if (!error)
		error = read_lines(reader);
	if (!error)
		error = add_symbols(reader);
	return error ? error : add_modules(reader);
}

/*
 * Peak memory: qsort() copies the array of lines; later there are the array and the symbols, which
 * are smaller than the text.
 */
static size_t cost_of(struct span table, size_t lines)
{
	size_t sorted = 2 * lines * sizeof(struct line),
	       named = lines * sizeof(struct line) + table.size;

	return sorted > named ? sorted : named;
}

/* Releases all but SIZE bytes of the charge. */
static void reduce_charge(struct reported_kernel *reported, size_t size)
{
	guest_account_release(reported->account, reported->charged - size);
	reported->charged = size;
}

static int read_within_account(struct reader *reader, struct span table,
			       struct guest_account *account)
{
	size_t lines = count_lines(table),
	       room = lines < REPORTED_KERNEL_SYMBOLS_MAX ? lines : REPORTED_KERNEL_SYMBOLS_MAX,
	       cost = cost_of(table, room);
	int error;

	if (!guest_account_charge(account, cost))
		return -ENOMEM;
	reader->reported->account = account;
	reader->reported->charged = cost;
	reader->room = room;
	reader->lines = calloc(room + 1, sizeof(*reader->lines));
	error = reader->lines ? read_all(reader, table) : -ENOMEM;
	reduce_charge(reader->reported, table.size);
	return error;
}

int reported_kernel_create(struct reported_kernel **reported, struct span table,
			   struct guest_account *account)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int error = -ENOMEM;

	if (reader)
		reader->reported = calloc(1, sizeof(*reader->reported));
	if (reader && reader->reported)
		error = read_within_account(reader, table, account);
	if (error) {
		if (reader)
			reported_kernel_free(reader->reported);
		error = error_set(error, "cannot use the kernel that the guest's agent reports: %s",
				  strerror(-error));
	} else {
		*reported = reader->reported;
	}
	if (reader)
		free(reader->lines);
	free(reader);
	return error;
}

void reported_kernel_free(struct reported_kernel *reported)
{
	if (!reported)
		return;
	symbols_free(reported->symbols);
	symbols_free(reported->per_cpu);
	free(reported->modules);
	free(reported->missing);
	guest_account_release(reported->account, reported->charged);
	free(reported);
}

static int compare_name(const void *name, const void *module)
{
	return strcmp(name, ((const struct guest_module *)module)->name);
}

/* LIST's modules are sorted by name, as those in the report. */
static bool is_listed(const struct module_list *list, const char *name)
{
	return bsearch(name, list->modules, list->count, sizeof(list->modules[0]), compare_name);
}

static int add_module_symbols(struct symbols *to, const struct module_list *list,
			      const struct symbols *from)
{
	int error = 0;

	for (size_t i = 0; !error && i < symbols_count(from); i++) {
		struct symbol symbol;

		symbols_at(from, i, &symbol);
		if (symbol.module && is_listed(list, symbol.module))
			error = symbols_add(to, symbol.start, symbol.end - symbol.start,
					    symbol.type, symbol.name, symbol.module);
	}
	return error;
}

int reported_kernel_list_modules(struct module_list *list, struct reported_kernel *reported,
				 const struct guest_view *view, const struct guest_paging *paging,
				 struct symbols *symbols)
{
	list->modules = calloc(reported->module_count + 1, sizeof(*list->modules));
	list->orcs = calloc(reported->module_count + 1, sizeof(*list->orcs));
	if (!list->modules || !list->orcs)
		return -ENOMEM;
	for (size_t i = 0; i < reported->module_count; i++) {
		reported->missing[i] |=
			!guest_module_has_build_id(&reported->modules[i], view, paging);
		if (!reported->missing[i])
			list->modules[list->count++] = reported->modules[i];
	}
	return symbols ? add_module_symbols(symbols, list, reported->symbols) : 0;
}
