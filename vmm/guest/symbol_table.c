/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/symbol_table.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"

#define NO_MODULE     UINT16_MAX
#define RECORD_HEADER 3 /* type, module index (2 bytes), then the name */

#define PREFIX_SIZE 8 /* has_prefix() reads up to this many bytes after the last name */

/* A kernel has about 200 000 symbols: 16 bytes each, plus the name in the arena. */
struct entry {
	uint64_t start;
	uint32_t size;   /* bytes; 0: extends to the next symbol; larger sizes are clipped */
	uint32_t record; /* offset into the arena */
};

struct symbols {
	struct entry *entries;
	size_t count, capacity;
	char *arena;
	size_t arena_size, arena_capacity;
	char **modules;
	size_t module_count, module_capacity;
	bool finished;
};

struct symbols *symbols_new(void)
{
	return calloc(1, sizeof(struct symbols));
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	for (size_t i = 0; i < symbols->module_count; i++)
		free(symbols->modules[i]);
	free(symbols->modules);
	free(symbols->arena);
	free(symbols->entries);
	free(symbols);
}

/*
 * The index of module NAME, which is added if it is new. The symbols of one module come in a row:
 * searched from the end.
 */
static int module_index(struct symbols *symbols, const char *name, uint16_t *index)
{
	*index = NO_MODULE;
	if (!name)
		return 0;
	for (size_t i = symbols->module_count; i-- > 0;)
		if (!strcmp(symbols->modules[i], name)) {
			*index = (uint16_t)i;
			return 0;
		}
	if (symbols->module_count == NO_MODULE)
		return -ENOMEM;
	if (array_reserve(&symbols->modules, &symbols->module_capacity, symbols->module_count + 1))
		return -ENOMEM;
	symbols->modules[symbols->module_count] = strdup(name);
	if (!symbols->modules[symbols->module_count])
		return -ENOMEM;
	*index = (uint16_t)symbols->module_count++;
	return 0;
}

int symbols_add(struct symbols *symbols, uint64_t start, uint64_t size, char type, const char *name,
		const char *module)
{
	size_t length = strlen(name) + 1;
	size_t needed = symbols->arena_size + RECORD_HEADER + length;
	uint16_t index;
	char *record;

	assert(!symbols->finished);
	if (needed > UINT32_MAX || module_index(symbols, module, &index) ||
	    array_reserve(&symbols->arena, &symbols->arena_capacity, needed + PREFIX_SIZE) ||
	    array_reserve(&symbols->entries, &symbols->capacity, symbols->count + 1))
		return -ENOMEM;
	record = symbols->arena + symbols->arena_size;
	record[0] = type;
	memcpy(record + 1, &index, sizeof(index));
	memcpy(record + RECORD_HEADER, name, length);
	symbols->entries[symbols->count++] = (struct entry){
		.start = start,
		.size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
		.record = (uint32_t)symbols->arena_size,
	};
	symbols->arena_size = needed;
	return 0;
}

void symbols_truncate(struct symbols *symbols, size_t count)
{
	assert(!symbols->finished && count <= symbols->count);
	if (count < symbols->count)
		symbols->arena_size = symbols->entries[count].record;
	symbols->count = count;
}

/* The lowest rank wins at an address: global, local, weak, as in perf. */
static int binding_rank(char type)
{
	if (type == 'W' || type == 'V')
		return 2;
	return isupper((unsigned char)type) ? 0 : 1;
}

static int compare_entries(const void *left, const void *right, void *context)
{
	const struct entry *a = left, *b = right;
	const char *arena = context;
	const char *record_a = arena + a->record, *record_b = arena + b->record;
	size_t length_a, length_b;
	int rank;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	rank = binding_rank(*record_a) - binding_rank(*record_b);
	if (rank)
		return rank;
	length_a = strspn(record_a + RECORD_HEADER, "_");
	length_b = strspn(record_b + RECORD_HEADER, "_");
	if (length_a != length_b)
		return length_a < length_b ? -1 : 1;
	length_a = strlen(record_a + RECORD_HEADER);
	length_b = strlen(record_b + RECORD_HEADER);
	if (length_a != length_b)
		return length_a > length_b ? -1 : 1;
	return a->record < b->record ? -1 : a->record > b->record;
}

/* Shrinks an allocation to SIZE bytes, which is not 0. */
static void *shrunk(void *block, size_t size)
{
	void *smaller = realloc(block, size);

	return smaller ? smaller : block;
}

static void sort(struct symbols *symbols, size_t first, size_t count)
{
	if (count > 1)
		qsort_r(symbols->entries + first, count, sizeof(struct entry), compare_entries,
			symbols->arena);
}

/*
 * Symbols mostly come in address order: sorts each run of equal addresses. Returns the length of
 * the ascending part.
 */
static size_t sort_ascending_part(struct symbols *symbols)
{
	size_t run = 0, i;

	for (i = 1;
	     i < symbols->count && symbols->entries[i].start >= symbols->entries[i - 1].start; i++)
		if (symbols->entries[i].start != symbols->entries[run].start) {
			sort(symbols, run, i - run);
			run = i;
		}
	sort(symbols, run, i - run);
	return i;
}

void symbols_finish(struct symbols *symbols)
{
	size_t sorted;

	assert(!symbols->finished);
	if (symbols->count) {
		symbols->entries = shrunk(symbols->entries, symbols->count * sizeof(struct entry));
		symbols->arena = shrunk(symbols->arena, symbols->arena_size + PREFIX_SIZE);
		symbols->capacity = symbols->count;
		symbols->arena_capacity = symbols->arena_size + PREFIX_SIZE;

		sorted = sort_ascending_part(symbols);
		sort(symbols, sorted, symbols->count - sorted);
		if (sorted < symbols->count &&
		    symbols->entries[sorted].start <= symbols->entries[sorted - 1].start)
			sort(symbols, 0, symbols->count);
	}
	symbols->finished = true;
}

void symbols_reopen(struct symbols *symbols)
{
	assert(symbols->finished);
	symbols->finished = false;
}

/* The number of entries whose start is not above ADDRESS. */
static size_t upper_bound(const struct symbols *symbols, uint64_t address)
{
	return array_partition(symbols->count, i, symbols->entries[i].start <= address);
}

static size_t first_of_same_start(const struct symbols *symbols, size_t index)
{
	uint64_t start = symbols->entries[index].start;

	return start ? upper_bound(symbols, start - 1) : 0;
}

/*
 * The last address of the symbol at INDEX: by its size, else before the next start, else the
 * highest address.
 */
static uint64_t last_of(const struct symbols *symbols, size_t index)
{
	const struct entry *entry = &symbols->entries[index];
	size_t next;

	if (entry->size)
		return entry->start > UINT64_MAX - entry->size ? UINT64_MAX
							       : entry->start + entry->size - 1;
	next = upper_bound(symbols, entry->start);
	return next < symbols->count ? symbols->entries[next].start - 1 : UINT64_MAX;
}

void symbols_at(const struct symbols *symbols, size_t index, struct symbol *symbol)
{
	const char *record;
	uint64_t last;
	uint16_t module;

	assert(symbols->finished && index < symbols->count);
	record = symbols->arena + symbols->entries[index].record;
	memcpy(&module, record + 1, sizeof(module));
	symbol->start = symbols->entries[index].start;
	last = last_of(symbols, index);
	symbol->end = last < UINT64_MAX ? last + 1 : last;
	symbol->name = record + RECORD_HEADER;
	symbol->module = module == NO_MODULE ? NULL : symbols->modules[module];
	symbol->type = *record;
}

bool symbols_find(const struct symbols *symbols, uint64_t address, struct symbol *symbol)
{
	size_t above = upper_bound(symbols, address);
	size_t index;

	assert(symbols->finished);
	if (!above)
		return false;
	/* Aliases may differ in size: the best of those that contain the address. */
	for (index = first_of_same_start(symbols, above - 1); index < above; index++)
		if (address <= last_of(symbols, index)) {
			symbols_at(symbols, index, symbol);
			return true;
		}
	return false;
}

/* The first bytes of a name, including its NUL. */
struct prefix {
	uint64_t bytes, mask;
};

static struct prefix prefix_of(const char *name)
{
	size_t size = strlen(name) + 1;
	struct prefix prefix = { 0 };

	if (size > PREFIX_SIZE)
		size = PREFIX_SIZE;
	memcpy(&prefix.bytes, name, size);
	memset(&prefix.mask, 0xff, size);
	return prefix;
}

/* Rejects nearly every other name with one comparison. */
static bool has_prefix(const char *name, const struct prefix *prefix)
{
	uint64_t bytes;

	memcpy(&bytes, name, PREFIX_SIZE);
	return (bytes & prefix->mask) == prefix->bytes;
}

static bool find_name(const struct symbols *symbols, const char *name, bool in_modules,
		      struct symbol *symbol)
{
	const struct prefix prefix = prefix_of(name);

	assert(symbols->finished);
	for (size_t i = 0; i < symbols->count; i++) {
		const char *record = symbols->arena + symbols->entries[i].record;
		uint16_t module;

		if (!has_prefix(record + RECORD_HEADER, &prefix) ||
		    strcmp(record + RECORD_HEADER, name) != 0)
			continue;
		memcpy(&module, record + 1, sizeof(module));
		if ((module != NO_MODULE) == in_modules) {
			symbols_at(symbols, i, symbol);
			return true;
		}
	}
	return false;
}

bool symbols_find_name(const struct symbols *symbols, const char *name, struct symbol *symbol)
{
	return find_name(symbols, name, false, symbol);
}

bool symbols_find_name_in_modules(const struct symbols *symbols, const char *name,
				  struct symbol *symbol)
{
	return find_name(symbols, name, true, symbol);
}

size_t symbols_count(const struct symbols *symbols)
{
	return symbols->count;
}
