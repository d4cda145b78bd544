/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/kernel_calls.h"

#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/perf_recording.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/call_site.h"
#include "vmm/perf_data/perf_data_reader.h"

#define CALL        0xe8
#define CALL_SIZE   5
#define JUMP        0xe9
#define JUMP_SHORT  0xeb
#define JUMPS_MAX   4  /* longest chain of tail calls that is followed */
#define WRONG_SHOWN 20 /* printed by a failed test */

struct tally {
	struct kernel_code *kernel;
	bool started; /* A program runs; the kernel's code was not patched completely before. */
	uint64_t steps[KERNEL_STEPS];
};

/* --- instructions ------------------------------------------------------------------- */

static bool is_text(const struct kernel_code *kernel, uint64_t address, size_t size)
{
	return address >= kernel->start && address < kernel->end && size <= kernel->end - address;
}

/* The target of a relative call or jump whose last four bytes end at END of the text. */
static uint64_t relative_target(const struct kernel_code *kernel, uint64_t end)
{
	int32_t offset;

	memcpy(&offset, kernel->text + (end - 4 - kernel->start), sizeof(offset));
	return end + (uint64_t)(int64_t)offset;
}

/* --- from a frame to its caller ---------------------------------------------------- */

static bool is_in(const struct symbol *function, uint64_t address)
{
	return address >= function->start && address < function->end;
}

/* Code that jumps to the address in a register (retpolines). */
static bool is_thunk(const struct kernel_code *kernel, uint64_t address)
{
	struct symbol thunk;

	return symbols_find(kernel->symbols, address, &thunk) &&
	       strstr(thunk.name, "__x86_indirect_thunk");
}

/* jmp *%REGISTER */
static bool is_indirect_jump(const uint8_t *code)
{
	return code[0] == 0xff && (code[1] & 0xf8) == 0xe0;
}

/* The target of the (conditional) jump at AT with an offset of one or four bytes; 0: no jump. */
static uint64_t jump_at(const struct kernel_code *kernel, uint64_t at)
{
	const uint8_t *code = kernel->text + (at - kernel->start);

	if (code[0] == JUMP)
		return relative_target(kernel, at + 5);
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80)
		return relative_target(kernel, at + 6);
	return code[0] == JUMP_SHORT || (code[0] & 0xf0) == 0x70
		       ? at + 2 + (uint64_t)(int64_t)(int8_t)code[1]
		       : 0;
}

/*
 * True if the code of HERE continues in FUNCTION, which is a label in assembly. Functions begin at
 * multiples of 16.
 */
static bool continues_in(const struct symbol *here, const struct symbol *function)
{
	return function->start == here->end && function->start % 16;
}

/*
 * Determines whether the function at FROM jumps to FUNCTION, directly, through other functions, or
 * indirectly. Any byte may look like a jump, but a jump to exactly this function is no coincidence.
 * Compilers put cold code into separate functions and jump between both.
 */
static enum kernel_step follow_jumps(const struct kernel_code *kernel, uint64_t from,
				     const struct symbol *function, unsigned int jumps)
{
	enum kernel_step step = KERNEL_STEP_WRONG;
	struct symbol here, next;

	if (!jumps || !symbols_find(kernel->symbols, from, &here) ||
	    !is_text(kernel, here.start, 8))
		return KERNEL_STEP_WRONG;
	if (continues_in(&here, function))
		return KERNEL_STEP_JUMP;
	for (uint64_t at = here.start;
	     at < here.end && is_text(kernel, at, 8) && step != KERNEL_STEP_JUMP; at++) {
		uint64_t target = jump_at(kernel, at);
		enum kernel_step further = KERNEL_STEP_WRONG;

		if (target && is_in(&here, target))
			continue;
		if (is_indirect_jump(kernel->text + (at - kernel->start)) ||
		    (target && is_thunk(kernel, target)))
			further = KERNEL_STEP_INDIRECT;
		else if (target && is_in(function, target))
			further = KERNEL_STEP_JUMP;
		else if (target && symbols_find(kernel->symbols, target, &next) &&
			 (next.start == target || strstr(next.name, ".cold")))
			further = follow_jumps(kernel, target, function, jumps - 1);
		if (further != KERNEL_STEP_WRONG)
			step = further;
	}
	return step;
}

struct kernel_jump {
	uint64_t from, function; /* 0: none */
	enum kernel_step step;
};

/* follow_jumps() decodes all code on the way, and chains repeat. */
static enum kernel_step find_jumps(struct kernel_code *kernel, uint64_t from,
				   const struct symbol *function)
{
	struct kernel_jump *jump;

	if (!kernel->jumps)
		kernel->jumps = calloc(KERNEL_JUMPS, sizeof(*kernel->jumps));
	if (!kernel->jumps)
		abort();
	jump = &kernel->jumps[(from + function->start * 31) / 16 % KERNEL_JUMPS];
	if (jump->from != from || jump->function != function->start)
		*jump = (struct kernel_jump){ from, function->start,
					      follow_jumps(kernel, from, function, JUMPS_MAX) };
	return jump->step;
}

/* Only indirect calls: direct ones have a known target. */
static bool follows_indirect_call(const struct kernel_code *kernel, uint64_t address)
{
	uint8_t code[CALL_SITE_SIZE];

	memcpy(code, kernel->text + (address - sizeof(code) - kernel->start), sizeof(code));
	if (code[CALL_SITE_SIZE - CALL_SIZE] == CALL)
		code[CALL_SITE_SIZE - CALL_SIZE] = 0;
	return call_site_matches(code, sizeof(code));
}

/*
 * A CPU starts by returning to an address that it has pushed (arch/x86/kernel/head_64.S), and the
 * first switch to a new task returns to the address that copy_thread() has set.
 */
static bool is_first_code(const struct kernel_code *kernel, uint64_t address)
{
	struct symbol symbol;

	return symbols_find(kernel->symbols, address, &symbol) &&
	       (strstr(symbol.name, "_startup_64") ||
		(symbol.start == address && !strncmp(symbol.name, "ret_from_fork", 13)));
}

/*
 * After a fault in kernel code that may fault, the kernel continues at an address from the
 * exception table.
 */
static bool follows_fault(const struct symbol *function)
{
	return strstr(function->name, "_handle_exception");
}

/* Classifies the step from a frame in FUNCTION to the one at ADDRESS. */
static enum kernel_step step_to(struct kernel_code *kernel, const struct symbol *function,
				uint64_t address)
{
	bool direct;

	if (!is_text(kernel, address - CALL_SITE_SIZE, CALL_SITE_SIZE))
		return KERNEL_STEP_ELSEWHERE;
	direct = kernel->text[address - CALL_SIZE - kernel->start] == CALL;
	if (direct && is_in(function, relative_target(kernel, address)))
		return KERNEL_STEP_CALL;
	if (function->start >= kernel->entry_start && function->start < kernel->entry_end)
		return KERNEL_STEP_INTERRUPTED;
	if (follows_indirect_call(kernel, address) || follows_fault(function) ||
	    (direct && is_thunk(kernel, relative_target(kernel, address))))
		return KERNEL_STEP_INDIRECT;
	if (direct)
		return find_jumps(kernel, relative_target(kernel, address), function);
	return is_first_code(kernel, address) ? KERNEL_STEP_FIRST : KERNEL_STEP_WRONG;
}

enum kernel_step kernel_step(struct kernel_code *kernel, uint64_t address, bool interrupted,
			     uint64_t caller)
{
	struct symbol function;

	return symbols_find(kernel->symbols, address - !interrupted, &function)
		       ? step_to(kernel, &function, caller)
		       : KERNEL_STEP_ELSEWHERE;
}

/* --- all chains -------------------------------------------------------------------- */

void kernel_print_frames(const struct symbols *symbols, const uint64_t *addresses, size_t count)
{
	struct symbol symbol;

	for (size_t i = 0; i < count; i++)
		if (symbols_find(symbols, addresses[i], &symbol))
			printf(" %s+%#" PRIx64, symbol.name, addresses[i] - symbol.start);
		else
			printf(" %#" PRIx64, addresses[i]);
}

/*
 * One part of a chain in the kernel, up to a marker. INTERRUPTED: its innermost address is not a
 * return address.
 */
static void count_steps(struct tally *tally, const uint64_t *chain, size_t size, bool interrupted)
{
	size_t depth = 0;

	while (depth < size && chain[depth] < (uint64_t)PERF_CONTEXT_MAX)
		depth++;
	for (size_t i = 0; i + 1 < depth; i++) {
		enum kernel_step step =
			kernel_step(tally->kernel, chain[i], interrupted, chain[i + 1]);

		if (step == KERNEL_STEP_WRONG && tally->steps[KERNEL_STEP_WRONG] < WRONG_SHOWN) {
			printf("wrong at %zu:", i + 1);
			kernel_print_frames(tally->kernel->symbols, chain, depth);
			printf("\n");
		}
		tally->steps[step]++;
		interrupted = step == KERNEL_STEP_INTERRUPTED;
	}
}

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct tally *tally = context;

	tally->started |= sample->misc == PERF_RECORD_MISC_USER;
	for (size_t i = 0; tally->started && i + 1 < sample->callchain_size; i++)
		if (sample->callchain[i] == (uint64_t)PERF_CONTEXT_KERNEL)
			count_steps(tally, sample->callchain + i + 1,
				    sample->callchain_size - i - 1, !i);
	return 0;
}

static void count_recording(struct tally *tally, const char *directory)
{
	const struct perf_data_events events = { .sample = count_sample, .context = tally };
	char path[256];

	snprintf(path, sizeof(path), "%s/perf.data", directory);
	recording_replay(path, &events);
}

void kernel_calls_check(const char *version, const char *directory)
{
	struct kernel_code kernel;
	char disk[256];
	struct tally tally = { .kernel = &kernel };
	const uint64_t *steps = tally.steps;
	uint64_t confirmed, all = 0;

	snprintf(disk, sizeof(disk), "%s/disk", directory);
	if (kernel_code_open(&kernel, disk, disk))
		count_recording(&tally, directory);
	confirmed = steps[KERNEL_STEP_CALL] + steps[KERNEL_STEP_JUMP];
	printf("%s: of kernel frames, %" PRIu64 " are called by their caller, %" PRIu64
	       " reached by a jump from the callee; %" PRIu64 " were called indirectly, %" PRIu64
	       " are entries or starts, %" PRIu64 " have a caller in a module; %" PRIu64
	       " were not called\n",
	       version, steps[KERNEL_STEP_CALL], steps[KERNEL_STEP_JUMP],
	       steps[KERNEL_STEP_INDIRECT],
	       steps[KERNEL_STEP_INTERRUPTED] + steps[KERNEL_STEP_FIRST],
	       steps[KERNEL_STEP_ELSEWHERE], steps[KERNEL_STEP_WRONG]);
	for (int i = 0; i < KERNEL_STEPS; i++)
		all += steps[i];
	CHECK(confirmed >= 10000);
	CHECK(confirmed * 2 >= all);
	/* Code that was patched later may have called something else. */
	CHECK(steps[KERNEL_STEP_WRONG] * 2000 <= all);
	kernel_code_close(&kernel);
}
