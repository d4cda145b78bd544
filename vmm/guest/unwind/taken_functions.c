/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/taken_functions.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/guest/page_walk.h"

#define PAGE       4096u
#define ALIGNMENT  16u /* of functions; others count as taken */
#define TEXT_MAX   (256ull << 20)
#define AREA_MAX   (512ull << 20) /* of modules */
#define BEFORE     2u             /* bytes before an address that decide what uses it */
#define JUMPS_MAX  (1u << 22)
#define MODULE_GAP (4ull << 20) /* from a module's code to its data, at most */

#define KERNEL_IMAGE 0xffffffff80000000ull
#define MODULES_END  0xffffffffff000000ull

enum {
	BEGINS = 1,
	REFERRED = 2, /* called, jumped to or taken */
	TAKEN = 4,
	CALLED = 8, /* by a direct call */
};

struct jump {
	uint32_t from, to; /* functions, by number */
};

struct taken_functions {
	uint64_t start, end; /* of the kernel's code */
	uint8_t *functions;  /* by ALIGNMENT bytes of code */
	struct jump *jumps;
	size_t jump_count, jump_room;
};

struct scan {
	struct taken_functions *self;
	const struct symbols *symbols;
	const struct guest_view *view;
	const struct guest_paging *paging;
	uint64_t skip_start, skip_end; /* pv_ops: calls through it are recognized, and direct */
	uint64_t extable_start, extable_end;
	bool failed;
};

void taken_functions_free(struct taken_functions *self)
{
	if (!self)
		return;
	free(self->functions);
	free(self->jumps);
	free(self);
}

/* NULL: no function begins there. */
static uint8_t *function_at(const struct taken_functions *self, uint64_t address)
{
	uint8_t *function;

	if (address - self->start >= self->end - self->start || address % ALIGNMENT)
		return NULL;
	function = &self->functions[(address - self->start) / ALIGNMENT];
	return *function & BEGINS ? function : NULL;
}

bool taken_functions_has(const struct taken_functions *self, uint64_t start)
{
	const uint8_t *function = self ? function_at(self, start) : NULL;

	return !function || *function & TAKEN;
}

bool taken_functions_has_callers(const struct taken_functions *self, uint64_t start)
{
	const uint8_t *function = self ? function_at(self, start) : NULL;

	return function && *function & CALLED;
}

static bool is_code(const struct symbol *symbol)
{
	return strchr("tTwW", symbol->type) != NULL;
}

static bool add_jump(struct taken_functions *self, uint64_t from, uint64_t to)
{
	if (self->jump_count == self->jump_room) {
		size_t room = self->jump_room ? self->jump_room * 2 : 4096;
		struct jump *jumps =
			room > JUMPS_MAX ? NULL : realloc(self->jumps, room * sizeof(*jumps));

		if (!jumps)
			return false;
		self->jumps = jumps;
		self->jump_room = room;
	}
	self->jumps[self->jump_count++] =
		(struct jump){ (uint32_t)((from - self->start) / ALIGNMENT),
			       (uint32_t)((to - self->start) / ALIGNMENT) };
	return true;
}

/* A jump at AT to another function, which is called indirectly if the one that jumps is. */
static void note_jump(struct scan *scan, uint64_t at, uint64_t target, uint8_t *function)
{
	struct symbol from;

	*function |= REFERRED;
	if (!symbols_find(scan->symbols, at, &from) || !function_at(scan->self, from.start))
		*function |= TAKEN;
	else if (from.start != target && !add_jump(scan->self, from.start, target))
		scan->failed = true;
}

static void mark(uint8_t *function, uint8_t flags)
{
	if (function)
		*function |= flags;
}

static bool is_jump(const uint8_t *end)
{
	return end[-1] == 0xe9 || (end[-2] == 0x0f && (end[-1] & 0xf0) == 0x80);
}

/* lea with an address relative to RIP. */
static bool is_lea(const uint8_t *end)
{
	return end[-2] == 0x8d && (end[-1] & 0xc7) == 5;
}

/*
 * The last four bytes of an instruction may be at WORD, at the address AT: the offset of a call or
 * jump, or an address.
 */
static void note_operand(struct scan *scan, const uint8_t *word, uint64_t at)
{
	int32_t value;
	uint64_t target;
	uint8_t *function;

	memcpy(&value, word, sizeof(value));
	mark(function_at(scan->self, (uint64_t)(int64_t)value), REFERRED | TAKEN);
	target = at + 4 + (uint64_t)(int64_t)value;
	function = function_at(scan->self, target);
	if (!function)
		return;
	if (word[-1] == 0xe8)
		mark(function, REFERRED | CALLED);
	else if (is_jump(word))
		note_jump(scan, at, target, function);
	else if (is_lea(word))
		mark(function, REFERRED | TAKEN);
}

/* An entry of the exception table has addresses relative to their own (kernel:
 * arch/x86/include/asm/extable.h); until 5.15 that of the handler is one. */
static void note_relative(struct scan *scan, const uint8_t *word, uint64_t at)
{
	int32_t value;

	memcpy(&value, word, sizeof(value));
	mark(function_at(scan->self, at + (uint64_t)(int64_t)value), REFERRED | TAKEN);
}

static void note_pointer(struct scan *scan, const uint8_t *bytes, uint64_t at)
{
	uint64_t address;

	if (at >= scan->skip_start && at < scan->skip_end)
		return;
	memcpy(&address, bytes, sizeof(address));
	mark(function_at(scan->self, address), REFERRED | TAKEN);
}

/* BYTES are the page at GVA, with BEFORE bytes before it and the next page after it. */
static void scan_page(struct scan *scan, const uint8_t *bytes, uint64_t gva, bool code)
{
	for (unsigned int i = 0; i < PAGE; i += 8)
		note_pointer(scan, bytes + i, gva + i);
	for (unsigned int i = 0; code && i < PAGE; i++)
		note_operand(scan, bytes + i, gva + i);
	for (unsigned int i = 0; i < PAGE; i += 4)
		if (gva + i >= scan->extable_start && gva + i < scan->extable_end)
			note_relative(scan, bytes + i, gva + i);
}

static bool read_page(const struct scan *scan, uint64_t gva, uint64_t end, uint8_t *to)
{
	if (gva < end && !guest_read_virtual(scan->view, scan->paging, gva, to, PAGE))
		return true;
	memset(to, 0, PAGE);
	return false;
}

/* Leaves out pages that are not readable; false if all are. */
static bool scan_range(struct scan *scan, uint64_t start, uint64_t end, bool code)
{
	uint8_t bytes[BEFORE + 2 * PAGE] = { 0 };
	uint64_t first = start & ~(uint64_t)(PAGE - 1);
	bool next = read_page(scan, first, end, bytes + BEFORE + PAGE), any = false;

	for (uint64_t gva = first; gva < end; gva += PAGE) {
		bool here = next;

		memmove(bytes, bytes + PAGE, BEFORE + PAGE);
		next = read_page(scan, gva + PAGE, end, bytes + BEFORE + PAGE);
		if (here)
			scan_page(scan, bytes + BEFORE, gva, code);
		any |= here;
	}
	return any;
}

/* The area of the modules' code and data. */
static void scan_modules(struct scan *scan, uint64_t image_end)
{
	uint64_t start = UINT64_MAX, end = 0;

	for (size_t i = 0; i < symbols_count(scan->symbols); i++) {
		struct symbol symbol;

		symbols_at(scan->symbols, i, &symbol);
		if (!symbol.module || symbol.start < image_end || symbol.start >= MODULES_END)
			continue;
		start = symbol.start < start ? symbol.start : start;
		end = symbol.start > end ? symbol.start : end;
	}
	if (start >= end)
		return;
	start = start - image_end > MODULE_GAP ? start - MODULE_GAP : image_end;
	end = MODULES_END - end > MODULE_GAP ? end + MODULE_GAP : MODULES_END;
	if (end - start > AREA_MAX)
		scan->failed = true;
	else
		scan_range(scan, start, end, true);
}

static void mark_functions(struct taken_functions *self, const struct symbols *symbols)
{
	for (size_t i = 0; i < symbols_count(symbols); i++) {
		struct symbol symbol;

		symbols_at(symbols, i, &symbol);
		if (is_code(&symbol) && symbol.start - self->start < self->end - self->start &&
		    symbol.start % ALIGNMENT == 0)
			self->functions[(symbol.start - self->start) / ALIGNMENT] = BEGINS;
	}
}

static void follow_jumps(struct taken_functions *self)
{
	bool changed = true;

	for (uint64_t i = 0; i < (self->end - self->start) / ALIGNMENT; i++)
		if (self->functions[i] == BEGINS)
			self->functions[i] |= TAKEN;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < self->jump_count; i++) {
			const struct jump *jump = &self->jumps[i];

			if (!(self->functions[jump->from] & TAKEN) ||
			    self->functions[jump->to] & TAKEN)
				continue;
			self->functions[jump->to] |= TAKEN;
			changed = true;
		}
	}
	free(self->jumps);
	self->jumps = NULL;
	self->jump_count = self->jump_room = 0;
}

static bool find_range(const struct symbols *symbols, const char *from, const char *to,
		       uint64_t *start, uint64_t *end)
{
	struct symbol first, last;

	if (!symbols_find_name(symbols, from, &first) || !symbols_find_name(symbols, to, &last))
		return false;
	*start = first.start;
	*end = last.start;
	return first.start >= KERNEL_IMAGE && first.start < last.start;
}

static bool scan_kernel(struct scan *scan, uint64_t image_end)
{
	struct taken_functions *self = scan->self;
	struct symbol pv;

	if (symbols_find_name(scan->symbols, "pv_ops", &pv)) {
		scan->skip_start = pv.start;
		scan->skip_end = pv.end;
	}
	find_range(scan->symbols, "__start___ex_table", "__stop___ex_table", &scan->extable_start,
		   &scan->extable_end);
	mark_functions(self, scan->symbols);
	if (!scan_range(scan, self->start, self->end, true) ||
	    !scan_range(scan, self->end, image_end, false))
		return false;
	scan_modules(scan, image_end);
	return !scan->failed;
}

struct taken_functions *taken_functions_new(const struct symbols *symbols,
					    const struct guest_view *view,
					    const struct guest_paging *paging)
{
	struct taken_functions *self = calloc(1, sizeof(*self));
	struct scan scan = { .self = self, .symbols = symbols, .view = view, .paging = paging };
	uint64_t image, image_end = 0;

	if (!self)
		return NULL;
	if (find_range(symbols, "_text", "_etext", &self->start, &self->end) &&
	    find_range(symbols, "_text", "_end", &image, &image_end) &&
	    self->end - self->start <= TEXT_MAX && image_end - image <= TEXT_MAX)
		self->functions = calloc((self->end - self->start) / ALIGNMENT + 1, 1);
	if (!self->functions || !scan_kernel(&scan, image_end)) {
		taken_functions_free(self);
		return NULL;
	}
	follow_jumps(self);
	return self;
}
