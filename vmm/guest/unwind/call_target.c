/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/call_target.h"

#include <stdlib.h>
#include <string.h>

#include "shared/hash.h"
#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_site.h"
#include "vmm/guest/unwind/taken_functions.h"

#define ANSWERS       8192u /* a power of two */
#define FUNCTIONS_MAX 2048u /* that one reaches by jumps */
#define SLOTS         4096u
#define CHUNK         1024u /* bytes of code that are read at once */
#define INSN_MAX      6u    /* bytes of the longest jump */
#define ALIGNMENT     16    /* of functions; labels in assembly code have none */
#define JUMP          0xe9
#define JUMP_SHORT    0xeb

struct answer {
	uint64_t from, to; /* the functions' first addresses; 0: empty */
	enum call_target target;
};

struct call_targets {
	const struct symbols *symbols;
	struct taken_functions *taken;
	bool jumps_by_memory; /* compilers emit them; not with retpolines */
	struct answer answers[ANSWERS];
	uint32_t bytes; /* of code that may still be read */
	/* Of one question: the functions that are reached, and a hash table of their numbers. */
	struct symbol functions[FUNCTIONS_MAX];
	size_t function_count;
	uint16_t slots[SLOTS]; /* 0: empty */
};

/* One question. */
struct question {
	struct call_targets *self;
	const struct guest_view *view;
	const struct guest_paging *paging;
	struct symbol function; /* to be reached */
};

struct call_targets *call_targets_new(const struct symbols *symbols, const struct guest_view *view,
				      const struct guest_paging *paging)
{
	struct call_targets *self = calloc(1, sizeof(*self));
	struct symbol thunk;

	if (!self)
		return NULL;
	self->symbols = symbols;
	self->taken = taken_functions_new(symbols, view, paging);
	self->jumps_by_memory = !symbols_find_name(symbols, "__x86_indirect_thunk_rax", &thunk);
	return self;
}

void call_targets_free(struct call_targets *self)
{
	if (!self)
		return;
	taken_functions_free(self->taken);
	free(self);
}

void call_targets_allow(struct call_targets *self, uint32_t bytes)
{
	self->bytes = bytes;
}

static bool begins_with(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* Code that jumps anywhere: retpolines, and trampolines that are patched at any time (kernel:
 * arch/x86/lib/retpoline.S, arch/x86/kernel/static_call.c, ftrace_64.S). Some have a second name
 * with a prefix, for code that runs before relocation. */
static bool jumps_anywhere(const struct symbol *symbol)
{
	return strstr(symbol->name, "__x86_indirect_") || begins_with(symbol->name, "__SCT__") ||
	       begins_with(symbol->name, "ftrace_") || begins_with(symbol->name, "__fentry__");
}

/* Code that any function may jump to instead of returning (arch/x86/lib/retpoline.S). */
static bool is_return_thunk(const struct symbol *symbol)
{
	return strstr(symbol->name, "return_thunk") != NULL;
}

/* Compilers put cold code into a function of its own, and jump between both. */
static bool is_cold(const struct symbol *symbol)
{
	return strstr(symbol->name, ".cold") != NULL;
}

/* The target of the (conditional) jump CODE at AT; 0: no jump. */
static uint64_t jump_target(const uint8_t *code, uint64_t at)
{
	int32_t distance;

	if (code[0] == JUMP_SHORT || (code[0] & 0xf0) == 0x70)
		return at + 2 + (uint64_t)(int64_t)(int8_t)code[1];
	if (code[0] != JUMP && !(code[0] == 0x0f && (code[1] & 0xf0) == 0x80))
		return 0;
	memcpy(&distance, code + (code[0] == JUMP ? 1 : 2), sizeof(distance));
	return at + (code[0] == JUMP ? 5 : 6) + (uint64_t)(int64_t)distance;
}

/* jmp *%register, and jmp *memory if that occurs. */
static bool is_indirect_jump(const struct call_targets *self, const uint8_t *code)
{
	if (code[0] != 0xff)
		return false;
	return (code[1] & 0xf8) == 0xe0 || (self->jumps_by_memory && (code[1] & 0x38) == 0x20);
}

/* False: no room. */
static bool add_function(struct call_targets *self, const struct symbol *function)
{
	size_t slot = hash_mix(0, function->start) & (SLOTS - 1);

	for (; self->slots[slot]; slot = (slot + 1) & (SLOTS - 1))
		if (self->functions[self->slots[slot] - 1].start == function->start)
			return true;
	if (self->function_count == FUNCTIONS_MAX)
		return false;
	self->functions[self->function_count++] = *function;
	self->slots[slot] = (uint16_t)self->function_count;
	return true;
}

/* A jump from FROM to TARGET, another function. Tail calls lead to a function's first address. */
static enum call_target follow_jump(struct question *question, const struct symbol *from,
				    uint64_t target)
{
	struct call_targets *self = question->self;
	struct symbol next;

	if (!symbols_find(self->symbols, target, &next) || is_return_thunk(&next) ||
	    (next.start != target && !is_cold(&next) && !is_cold(from)))
		return CALL_TARGET_OTHER;
	if (next.start == question->function.start)
		return CALL_TARGET_DIRECT;
	if (jumps_anywhere(&next))
		return CALL_TARGET_INDIRECT;
	return add_function(self, &next) ? CALL_TARGET_OTHER : CALL_TARGET_UNKNOWN;
}

static enum call_target scan(struct question *question, const struct symbol *from,
			     const uint8_t *code, size_t size, uint64_t at)
{
	for (size_t i = 0; i < size; i++) {
		uint64_t target = jump_target(code + i, at + i);
		enum call_target found;

		if (is_indirect_jump(question->self, code + i))
			return CALL_TARGET_INDIRECT;
		if (!target || (target >= from->start && target < from->end))
			continue;
		found = follow_jump(question, from, target);
		if (found != CALL_TARGET_OTHER)
			return found;
	}
	return CALL_TARGET_OTHER;
}

static enum call_target scan_function(struct question *question, const struct symbol *from)
{
	uint8_t code[CHUNK + INSN_MAX];

	for (uint64_t at = from->start; at < from->end; at += CHUNK) {
		uint64_t left = from->end - at;
		size_t size = left < CHUNK ? (size_t)left : CHUNK;
		enum call_target found;

		if (question->self->bytes < size)
			return CALL_TARGET_UNKNOWN;
		question->self->bytes -= (uint32_t)size;
		memset(code, 0, sizeof(code));
		if (guest_read_virtual(question->view, question->paging, at, code,
				       size + (left > CHUNK ? INSN_MAX : 0)))
			return CALL_TARGET_UNKNOWN;
		found = scan(question, from, code, size, at);
		if (found != CALL_TARGET_OTHER)
			return found;
	}
	return CALL_TARGET_OTHER;
}

/* Is FROM the function to be reached, or does it jump there? */
static enum call_target follow(struct question *question, const struct symbol *from)
{
	struct call_targets *self = question->self;
	enum call_target found = CALL_TARGET_OTHER;

	if (from->start == question->function.start)
		return CALL_TARGET_DIRECT;
	if (jumps_anywhere(from))
		return CALL_TARGET_INDIRECT;
	memset(self->slots, 0, sizeof(self->slots));
	self->function_count = 0;
	add_function(self, from);
	for (size_t i = 0; i < self->function_count && found == CALL_TARGET_OTHER; i++) {
		const struct symbol function = self->functions[i];

		found = scan_function(question, &function);
	}
	return found;
}

static enum call_target ask(struct call_targets *self, const struct guest_view *view,
			    const struct guest_paging *paging, const struct symbol *from,
			    const struct symbol *to)
{
	uint64_t hash = hash_mix(hash_mix(0, from->start), to->start);
	struct answer *answer = &self->answers[hash & (ANSWERS - 1)];
	struct question question = {
		.self = self, .view = view, .paging = paging, .function = *to
	};
	enum call_target found;

	if (answer->from == from->start && answer->to == to->start)
		return answer->target;
	found = follow(&question, from);
	/* Otherwise it may be known with more time. */
	if (self->bytes >= CHUNK)
		*answer = (struct answer){ from->start, to->start, found };
	return found;
}

/* An indirect call of the function TO. */
static enum call_target indirect(const struct call_targets *self, const struct symbol *to)
{
	return is_return_thunk(to) || taken_functions_has(self->taken, to->start)
		       ? CALL_TARGET_INDIRECT
		       : CALL_TARGET_OTHER;
}

/* call *ADDRESS: through pv_ops, whose functions do not count as taken, while the kernel starts. */
static bool is_through_variable(const uint8_t *code)
{
	return !memcmp(code + CALL_SITE_SIZE - 6, "\xff\x15", 2) ||
	       !memcmp(code + CALL_SITE_SIZE - 7, "\xff\x14\x25", 3);
}

/* The padding before a function may count calls, and continues in it (kernel: arch/x86/kernel/
 * callthunks.c). */
static void skip_padding(const struct call_targets *self, struct symbol *from)
{
	if (begins_with(from->name, "__pfx_"))
		symbols_find(self->symbols, from->end, from);
}

static enum call_target reach(struct call_targets *self, const struct guest_view *view,
			      const struct guest_paging *paging, uint64_t target, uint64_t ip)
{
	struct symbol from, to;
	enum call_target found;

	if (!symbols_find(self->symbols, target, &from) || !symbols_find(self->symbols, ip, &to) ||
	    (to.start % ALIGNMENT && !is_cold(&to)))
		return CALL_TARGET_UNKNOWN;
	if (is_return_thunk(&to))
		return CALL_TARGET_INDIRECT;
	skip_padding(self, &from);
	found = ask(self, view, paging, &from, &to);
	return found == CALL_TARGET_INDIRECT ? indirect(self, &to) : found;
}

enum call_target call_target_classify(struct call_targets *self, const struct guest_view *view,
				      const struct guest_paging *paging, uint64_t address,
				      uint64_t ip)
{
	uint8_t code[CALL_SITE_SIZE];
	struct symbol to;
	uint64_t target;

	if (guest_read_virtual(view, paging, address - sizeof(code), code, sizeof(code)))
		return CALL_TARGET_UNKNOWN;
	if (!call_site_matches(code, sizeof(code)))
		return CALL_TARGET_NONE;
	if (call_site_target(code, sizeof(code), address, &target))
		return reach(self, view, paging, target, ip);
	if (is_through_variable(code))
		return CALL_TARGET_INDIRECT;
	return symbols_find(self->symbols, ip, &to) && !is_cold(&to) ? indirect(self, &to)
								     : CALL_TARGET_UNKNOWN;
}

bool call_target_begins_thread(const struct call_targets *self, uint64_t ip)
{
	struct symbol function;

	return !symbols_find(self->symbols, ip, &function) ||
	       !taken_functions_has_callers(self->taken, function.start);
}
