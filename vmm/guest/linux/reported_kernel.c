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

#define PAGE      4096u
#define NO_MODULE UINT16_MAX
/* Of a line that names nothing here: it is only where what lies before it ends. */
#define OTHER_MODULE (UINT16_MAX - 1)
/* struct elf64_note and the name "GNU": behind them stands the build id. */
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
	uint64_t text_ends[AGENT_KERNEL_MODULES_MAX]; /* of each, behind its last function; 0: it
							 has none */
	size_t module_count;
	struct line *lines;
	size_t count, room;
	struct reported_kernel *told;
};

static bool is_plain(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isgraph((unsigned char)name[i]) || name[i] == '[' || name[i] == ']')
			return false;
	return length;
}

/* Can it be one, and can its presence be proven? */
static bool is_module(const struct agent_module *module)
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
	struct reported_kernel *told = reader->told;
	struct agent_kernel head;
	uint64_t offset = sizeof(head);

	if (!span_copy(table, 0, &head, sizeof(head)) || head.modules > AGENT_KERNEL_MODULES_MAX ||
	    head.build_id_size > sizeof(head.build_id))
		return -EINVAL;
	told->modules_hash = head.modules_hash;
	told->build_id_size = head.build_id_size;
	memcpy(told->build_id, head.build_id, sizeof(told->build_id));
	for (uint32_t i = 0; i < head.modules; i++, offset += sizeof(struct agent_module)) {
		struct agent_module *module = &reader->modules[reader->module_count];

		if (!span_copy(table, offset, module, sizeof(*module)))
			return -EINVAL;
		reader->module_count += is_module(module);
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

/* The hexadecimal number at *AT, which is moved behind it. */
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

/* That in MODULE, "\t[NAME]", if LINE is code of it. */
static uint16_t module_of(const struct reader *reader, const struct line *line, const char *module,
			  const char *end)
{
	uint16_t index = OTHER_MODULE;

	if (end - module >= 4 && module[1] == '[' && end[-1] == ']' && strchr("tTwW", line->type))
		index = find_module(reader, module + 2, (size_t)(end - module) - 3);
	/* Code that is there only while the module starts may lie elsewhere. */
	if (index != OTHER_MODULE &&
	    line->address - reader->modules[index].start >= reader->modules[index].size)
		index = OTHER_MODULE;
	return index;
}

/* "ADDRESS TYPE NAME[\t[MODULE]]". What is no such line is passed over. */
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

static int by_place(const void *left, const void *right)
{
	const struct line *one = left, *other = right;

	if (one->address != other->address)
		return one->address < other->address ? -1 : 1;
	return one->name < other->name ? -1 : one->name > other->name;
}

static int read_lines(struct reader *reader)
{
	const char *at = (const char *)reader->text.data, *end = at + reader->text.size, *next;

	/* The last line without its end was cut. */
	for (; at < end && (next = memchr(at, '\n', (size_t)(end - at))); at = next + 1) {
		struct line line;

		if (!parse(reader, at, next, &line))
			continue;
		if (reader->count == reader->room)
			return -EFBIG;
		reader->lines[reader->count++] = line;
	}
	if (reader->count)
		qsort(reader->lines, reader->count, sizeof(reader->lines[0]), by_place);
	return 0;
}

/*
 * A symbol ends where any other begins, and at the latest with its page if that is of another
 * module: since Linux 6.4 a module's memory is in pieces (struct module_memory), and others' may
 * lie between them.
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
	struct reported_kernel *told = reader->told;
	const char *module = NULL;
	char name[KALLSYMS_NAME_MAX];
	bool per_cpu = line->address < KERNEL_IMAGE_START;

	memcpy(name, reader->text.data + line->name, line->length);
	name[line->length] = '\0';
	if (line->module != NO_MODULE) {
		module = reader->modules[line->module].name;
		reader->text_ends[line->module] = end;
	}
	return symbols_add(per_cpu ? told->per_cpu : told->symbols, line->address,
			   end - line->address, line->type, name, module);
}

static int add_symbols(struct reader *reader)
{
	struct reported_kernel *told = reader->told;
	size_t next = 0;
	int error = 0;

	told->symbols = symbols_new();
	told->per_cpu = symbols_new();
	if (!told->symbols || !told->per_cpu)
		return -ENOMEM;
	for (size_t i = 0; !error && i < reader->count; i++)
		if (reader->lines[i].module != OTHER_MODULE)
			error = add_symbol(reader, &reader->lines[i], end_of(reader, &next, i));
	if (!error && !symbols_count(told->symbols) && !symbols_count(told->per_cpu))
		error = -EINVAL;
	if (!error)
		error = symbols_finish(told->symbols);
	return error ? error : symbols_finish(told->per_cpu);
}

/* Behind its text, as far as that has symbols: /proc/modules tells the size of all that it has. */
static uint64_t text_end(const struct reader *reader, size_t index)
{
	const struct agent_module *module = &reader->modules[index];
	uint64_t end = (reader->text_ends[index] + PAGE - 1) / PAGE * PAGE;

	return end < module->start + module->size ? end : module->start + module->size;
}

/* Of two that lie in each other one at least is not what it says, and nothing tells which. */
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
	struct reported_kernel *told = reader->told;

	told->modules = calloc(reader->module_count + 1, sizeof(*told->modules));
	told->gone = calloc(reader->module_count + 1, sizeof(*told->gone));
	if (!told->modules || !told->gone)
		return -ENOMEM;
	for (size_t i = 0; i < reader->module_count; i++)
		if (reader->text_ends[i] && is_apart(reader, i))
			told->modules[told->module_count++] = describe(reader, i);
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
 * While it is read each line is one of a list, which is sorted by way of another one; then its name
 * is copied, and a symbol made of it, which take less than the line does.
 */
static size_t cost_of(struct span table, size_t lines)
{
	size_t sorted = 2 * lines * sizeof(struct line),
	       named = lines * sizeof(struct line) + table.size;

	return sorted > named ? sorted : named;
}

/* What stays when TOLD is made. */
static void keep(struct reported_kernel *told, size_t size)
{
	guest_account_release(told->account, told->taken - size);
	told->taken = size;
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
	reader->told->account = account;
	reader->told->taken = cost;
	reader->room = room;
	reader->lines = calloc(room + 1, sizeof(*reader->lines));
	error = reader->lines ? read_all(reader, table) : -ENOMEM;
	keep(reader->told, table.size);
	return error;
}

int reported_kernel_create(struct reported_kernel **told, struct span table,
			   struct guest_account *account)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int error = -ENOMEM;

	if (reader)
		reader->told = calloc(1, sizeof(*reader->told));
	if (reader && reader->told)
		error = read_within_account(reader, table, account);
	if (error) {
		if (reader)
			reported_kernel_free(reader->told);
		error = error_set(error,
				  "what the guest's agent tells of the kernel can not be used: %s",
				  strerror(-error));
	} else {
		*told = reader->told;
	}
	if (reader)
		free(reader->lines);
	free(reader);
	return error;
}

void reported_kernel_free(struct reported_kernel *told)
{
	if (!told)
		return;
	symbols_free(told->symbols);
	symbols_free(told->per_cpu);
	free(told->modules);
	free(told->gone);
	guest_account_release(told->account, told->taken);
	free(told);
}
