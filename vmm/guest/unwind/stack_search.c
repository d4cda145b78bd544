/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/stack_search.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/call_target.h"
#include "vmm/guest/unwind/unwind_step.h"

/* Bytes between the end of a task's stack and the frame at its begin, at most: struct pt_regs, what
 * is above it, and frames of the entry code or struct fork_frame below it. */
#define OUTERMOST_MAX 512
/* arch/x86/include/asm/pgtable_64_types.h, without KASLR; they are allocated from below. */
#define MODULES_START 0xffffffffa0000000ull
#define MODULES_END   0xffffffffe0000000ull

struct stack_search {
	const struct symbols *symbols;
	struct call_targets *targets;
	uint64_t entry_start, entry_end; /* the entry code; 0: unknown */
	uint64_t image_end;              /* of the kernel; modules are at higher addresses */
};

/* One search. */
struct walk {
	struct stack_search *self;
	const struct stack_search_input *input;
	struct stack_search_result *result;
	uint64_t addresses[STACK_SEARCH_DEPTH]; /* of the current candidate */
	unsigned int depth;
};

enum verdict {
	VERDICT_REJECTED,
	VERDICT_OPEN,  /* the rest of the chain is unknown */
	VERDICT_WHOLE, /* up to the outermost frame */
};

struct stack_search *stack_search_new(const struct symbols *symbols, const struct guest_view *view,
				      const struct guest_paging *paging)
{
	struct stack_search *self = calloc(1, sizeof(*self));
	struct symbol start, end;

	if (!self)
		return NULL;
	self->symbols = symbols;
	self->image_end = symbols_find_name(symbols, "_end", &end) ? end.start : KERNEL_TEXT_START;
	self->targets = call_targets_new(symbols, view, paging);
	if (!self->targets) {
		stack_search_free(self);
		return NULL;
	}
	if (symbols_find_name(symbols, "__entry_text_start", &start) &&
	    symbols_find_name(symbols, "__entry_text_end", &end)) {
		self->entry_start = start.start;
		self->entry_end = end.start;
	}
	return self;
}

void stack_search_free(struct stack_search *self)
{
	if (!self)
		return;
	call_targets_free(self->targets);
	free(self);
}

static const struct stack_bounds *stack_of(const struct stack_search_input *input, uint64_t sp)
{
	for (unsigned int i = 0; i < input->stack_count; i++)
		if (sp >= input->stacks[i].start && sp < input->stacks[i].end)
			return &input->stacks[i];
	return NULL;
}

static bool is_outermost(const struct stack_search_input *input, uint64_t sp)
{
	const struct stack_bounds *stack = stack_of(input, sp - 1);

	return stack && stack->of_task && stack->end - sp <= OUTERMOST_MAX;
}

/*
 * Addresses that are returned to without a call: copy_thread() sets that of a new task, and tracers
 * replace that of a caller. The start of a CPU pushes one and jumps to its first function
 * (arch/x86/kernel/head_64.S), which nothing calls.
 */
static bool is_returned_to(const struct stack_search *self, uint64_t address, uint64_t ip)
{
	static const char *const names[] = { "ret_from_fork", "return_to_handler",
					     "rethook_trampoline", "kretprobe_trampoline" };
	struct symbol symbol, function;

	if (!symbols_find(self->symbols, address, &symbol))
		return false;
	if (strstr(symbol.name, "_startup_64"))
		return symbols_find(self->symbols, ip, &function) &&
		       (!strcmp(function.name, "start_secondary") ||
			!strcmp(function.name, "start_kernel") ||
			strstr(function.name, "_start_kernel") ||
			call_target_begins_thread(self->targets, ip));
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strstr(symbol.name, names[i]))
			return true;
	return false;
}

/* Code without a table was generated, or is of a module that was just loaded. */
static bool is_code(const struct walk *walk, const struct unwind_state *state)
{
	return kernel_orc_table(walk->input->orc, state->ip - !state->signal) ||
	       (state->ip >= walk->self->image_end && state->ip >= MODULES_START &&
		state->ip < MODULES_END);
}

/* Callers of a task's first function: copy_thread() and kthread() (kernel:
 * arch/x86/kernel/process.c, kernel/kthread.c). */
static bool calls_threads(const struct stack_search *self, uint64_t address)
{
	struct symbol symbol;

	return symbols_find(self->symbols, address - 1, &symbol) &&
	       (!strcmp(symbol.name, "kthread") || !strncmp(symbol.name, "ret_from_fork", 13));
}

static bool is_called_indirectly(const struct walk *walk, const struct unwind_state *state,
				 uint64_t ip)
{
	return !calls_threads(walk->self, state->ip) ||
	       call_target_begins_thread(walk->self->targets, ip);
}

/* Can the step from the frame BEFORE lead to the one in STATE? */
static bool is_possible(struct walk *walk, const struct unwind_state *before,
			const struct unwind_state *state)
{
	const struct stack_search_input *input = walk->input;
	const struct stack_bounds *stack = stack_of(input, state->sp - 1);
	const struct stack_bounds *left = stack_of(input, before->sp);
	uint64_t ip = before->signal ? before->ip : before->ip - 1;

	if (!is_code(walk, state) || !stack ||
	    (left && (left == stack ? state->sp <= before->sp : left->of_task)))
		return false;
	if (state->signal)
		return true;
	switch (call_target_classify(walk->self->targets, input->view, &input->orc->paging,
				     state->ip, ip)) {
	case CALL_TARGET_NONE:
		return is_returned_to(walk->self, state->ip, ip);
	case CALL_TARGET_OTHER:
		return false;
	case CALL_TARGET_INDIRECT:
		return is_called_indirectly(walk, state, ip);
	default:
		return true;
	}
}

static bool is_described(const struct walk *walk, const struct unwind_state *state)
{
	return kernel_orc_table(walk->input->orc, state->ip - !state->signal);
}

/* Unwinds from RSP. */
static enum verdict walk_from(struct walk *walk, uint64_t rsp)
{
	struct unwind_state state = { 0 }, before;

	unwind_start(&state, walk->input->registers);
	state.word = 8;
	state.sp = rsp;
	stack_reader_start(&state.stack, walk->input->view, &walk->input->orc->paging);
	walk->depth = 0;
	for (;;) {
		enum unwind_result result;

		if (walk->depth == STACK_SEARCH_DEPTH)
			return VERDICT_OPEN;
		walk->addresses[walk->depth++] = state.ip;
		if (++walk->result->steps >= STACK_SEARCH_STEPS_MAX)
			return VERDICT_OPEN;
		before = state;
		result = unwind_step_orc(&state, walk->input->orc);
		if (result == UNWIND_LOST)
			return is_described(walk, &before) ? VERDICT_REJECTED : VERDICT_OPEN;
		if (result != UNWIND_CALLER)
			return is_outermost(walk->input, before.sp) ? VERDICT_WHOLE
								    : VERDICT_REJECTED;
		if (!is_possible(walk, &before, &state))
			return VERDICT_REJECTED;
	}
}

/* Keeps what the walked chain has in common with those before. */
static void add_candidate(struct walk *walk, uint64_t rsp, enum verdict verdict)
{
	struct stack_search_result *result = walk->result;
	unsigned int same = 0;

	if (!result->candidates++) {
		memcpy(result->addresses, walk->addresses,
		       walk->depth * sizeof(result->addresses[0]));
		result->depth = walk->depth;
		result->rsp = rsp;
		result->whole = verdict == VERDICT_WHOLE;
		return;
	}
	while (same < walk->depth && same < result->depth &&
	       walk->addresses[same] == result->addresses[same])
		same++;
	result->whole &= verdict == VERDICT_WHOLE && same == walk->depth && same == result->depth;
	result->depth = same;
}

/*
 * Does a register that functions preserve point below RSP, on the same stack? It has a value of the
 * current function or of a caller, and none of them has anything there.
 */
static bool has_dangling(const struct walk *walk, uint64_t rsp)
{
	const struct guest_registers *registers = walk->input->registers;
	const struct stack_bounds *stack = stack_of(walk->input, rsp);
	const uint64_t preserved[] = { registers->rbx, registers->rbp, registers->r12,
				       registers->r13, registers->r14, registers->r15 };

	for (unsigned int i = 0; stack && i < sizeof(preserved) / sizeof(preserved[0]); i++)
		if (preserved[i] > stack->start && preserved[i] < rsp)
			return true;
	return false;
}

static void try_from(struct walk *walk, uint64_t rsp)
{
	enum verdict verdict;

	if (has_dangling(walk, rsp))
		return;
	verdict = walk_from(walk, rsp);
	if (verdict != VERDICT_REJECTED)
		add_candidate(walk, rsp, verdict);
}

/* A return address is one of these two words, above RSP: the second for thunks. */
static bool may_return(struct stack_reader *reader, const struct orc_entry *entry, uint64_t rsp)
{
	uint64_t at = rsp + (uint64_t)(int64_t)entry->sp_offset - 8, word;

	return (stack_read(reader, at, 8, &word) && word >= KERNEL_TEXT_START) ||
	       (stack_read(reader, at + 8, 8, &word) && word >= KERNEL_TEXT_START);
}

static void search_stack(struct walk *walk, const struct orc_entry *entry,
			 const struct stack_bounds *stack)
{
	struct stack_reader reader;

	stack_reader_start(&reader, walk->input->view, &walk->input->orc->paging);
	for (uint64_t rsp = (stack->start + 7) & ~7ull;
	     rsp < stack->end && walk->result->steps < STACK_SEARCH_STEPS_MAX; rsp += 8)
		if (entry->type != ORC_TYPE_CALL || entry->sp_register != ORC_SP ||
		    may_return(&reader, entry, rsp))
			try_from(walk, rsp);
}

/* Code that may run on other stacks: the entry's own, before the task's is in use. */
static bool may_be_elsewhere(const struct stack_search *self, uint64_t rip)
{
	struct symbol symbol;

	return (rip >= self->entry_start && rip < self->entry_end) ||
	       (symbols_find(self->symbols, rip, &symbol) &&
		(!strcmp(symbol.name, "sync_regs") || !strcmp(symbol.name, "fixup_bad_iret")));
}

static bool needs_rsp(const struct orc_entry *entry)
{
	return entry->sp_register == ORC_SP || entry->sp_register == ORC_SP_INDIRECT;
}

/* Code that is not described is a thunk, or cannot be unwound. */
static bool find_entry(const struct walk *walk, struct orc_entry *entry)
{
	const struct kernel_orc *orc = walk->input->orc;
	uint64_t rip = walk->input->registers->rip;
	const struct orc_table *table = kernel_orc_table(orc, rip);
	struct symbol symbol;

	if (!table || !orc_find(table, orc->format, rip, entry))
		return false;
	if (entry->type == ORC_TYPE_CALL || entry->type == ORC_TYPE_REGS ||
	    entry->type == ORC_TYPE_REGS_PARTIAL)
		return true;
	entry->sp_register = ORC_SP;
	return symbols_find(walk->self->symbols, rip, &symbol) && strstr(symbol.name, "__x86_");
}

void stack_search_run(struct stack_search *self, const struct stack_search_input *input,
		      struct stack_search_result *result)
{
	struct walk walk = { .self = self, .input = input, .result = result };
	struct orc_entry entry;

	*result =
		(struct stack_search_result){ .addresses = { input->registers->rip }, .depth = 1 };
	call_targets_allow(self->targets, STACK_SEARCH_CODE_MAX);
	if (may_be_elsewhere(self, input->registers->rip) || !find_entry(&walk, &entry))
		return;
	if (!needs_rsp(&entry))
		try_from(&walk, 0);
	for (unsigned int i = 0; needs_rsp(&entry) && i < input->stack_count; i++)
		search_stack(&walk, &entry, &input->stacks[i]);
	if (result->steps < STACK_SEARCH_STEPS_MAX)
		return;
	result->depth = 1;
	result->candidates = 0;
	result->whole = false;
}
