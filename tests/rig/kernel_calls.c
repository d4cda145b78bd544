// SPDX-License-Identifier: Apache-2.0
#include "tests/rig/kernel_calls.h"

#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/guest/call_site.h"
#include "vmm/guest/symbols.h"
#include "vmm/profile/perf_data_reader.h"

#define KERNEL_START 0xffffffff80000000ull
#define CALL         0xe8
#define CALL_SIZE    5
#define JUMP         0xe9
#define JUMP_SHORT   0xeb
#define JUMPS_MAX    4  /* from function to function, instead of calls */
#define WRONG_SHOWN  20 /* that a failed test prints */

/* How the step from a frame to its caller is told. */
enum step {
	STEP_CALL,        /* the caller's call leads to the frame's function, */
	STEP_JUMP,        /* or to one that jumps there */
	STEP_INDIRECT,    /* by a register or memory, to any function */
	STEP_INTERRUPTED, /* the frame is entry code: what it interrupted did not call it */
	STEP_FIRST,       /* the caller is where a CPU or a task begins */
	STEP_ELSEWHERE,   /* the caller is in a module */
	STEP_WRONG,
	STEPS,
};

struct kernel {
	struct symbols *symbols; /* functions, of modules too */
	uint8_t *text;
	uint64_t start, end;             /* of it */
	uint64_t entry_start, entry_end; /* of entry code in it */
};

struct tally {
	const struct kernel *kernel;
	bool begun; /* a program runs: before that the kernel's code was not patched yet */
	uint64_t steps[STEPS];
};

/* --- the kernel -------------------------------------------------------------------- */

/* Names with a dot in front are labels inside of functions. */
static void take_line(struct kernel *kernel, const char *line)
{
	char name[512], module[80] = "", type;
	uint64_t address;

	if (sscanf(line, "%" SCNx64 " %c %511s %79s", &address, &type, name, module) < 3 ||
	    address < KERNEL_START || !strchr("tTwW", type) || *name == '.')
		return;
	if (!strcmp(name, "_text"))
		kernel->start = address;
	else if (!strcmp(name, "_etext"))
		kernel->end = address;
	else if (!strcmp(name, "__entry_text_start"))
		kernel->entry_start = address;
	else if (!strcmp(name, "__entry_text_end"))
		kernel->entry_end = address;
	else
		CHECK_EQUAL(symbols_add(kernel->symbols, address, 0, type, name, *module ? module : NULL), 0);
}

static bool read_text(struct kernel *kernel, FILE *disk)
{
	size_t size = (size_t)(kernel->end - kernel->start);

	if (!kernel->start || kernel->end <= kernel->start || !kernel->entry_start)
		return false;
	kernel->text = malloc(size);
	return kernel->text && !fseek(disk, atol(KERNEL_TEXT_OFFSET), SEEK_SET) &&
	       fread(kernel->text, 1, size, disk) == size;
}

static void close_kernel(struct kernel *kernel)
{
	symbols_free(kernel->symbols);
	free(kernel->text);
}

static bool open_kernel(struct kernel *kernel, const char *directory)
{
	char path[256], line[1024];
	FILE *disk;
	bool ok;

	*kernel = (struct kernel){ .symbols = symbols_new() };
	snprintf(path, sizeof(path), "%s/disk", directory);
	disk = fopen(path, "r");
	while (disk && fgets(line, sizeof(line), disk) && *line)
		take_line(kernel, line);
	ok = disk && !symbols_finish(kernel->symbols) && read_text(kernel, disk);
	if (disk)
		fclose(disk);
	if (!ok)
		FAIL_TEST("%s has not the kernel's code", path);
	return ok;
}

static bool is_text(const struct kernel *kernel, uint64_t address, size_t size)
{
	return address >= kernel->start && address < kernel->end && size <= kernel->end - address;
}

/* Of an instruction with four bytes of an offset at its end, which is at END of the text. */
static uint64_t target_of(const struct kernel *kernel, uint64_t end)
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

/* Code that jumps to where a register tells (retpolines). */
static bool is_thunk(const struct kernel *kernel, uint64_t address)
{
	struct symbol thunk;

	return symbols_find(kernel->symbols, address, &thunk) && strstr(thunk.name, "__x86_indirect_thunk");
}

/* jmp *%REGISTER */
static bool is_indirect_jump(const uint8_t *code)
{
	return code[0] == 0xff && (code[1] & 0xf8) == 0xe0;
}

/* Where the jump at AT leads to, always or if, by an offset of one byte or four; 0: there is none. */
static uint64_t jump_at(const struct kernel *kernel, uint64_t at)
{
	const uint8_t *code = kernel->text + (at - kernel->start);

	if (code[0] == JUMP)
		return target_of(kernel, at + 5);
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80)
		return target_of(kernel, at + 6);
	return code[0] == JUMP_SHORT || (code[0] & 0xf0) == 0x70 ? at + 2 + (uint64_t)(int64_t)(int8_t)code[1]
								 : 0;
}

/* The code of HERE goes on in FUNCTION: a label in assembly. Functions begin at multiples of 16. */
static bool goes_on_in(const struct symbol *here, const struct symbol *function)
{
	return function->start == here->end && function->start % 16;
}

/*
 * Does the function at FROM jump to FUNCTION, by some on the way, or to what no code tells? Any byte may look
 * like a jump, but one that leads to this of all functions is no chance. Compilers put what is rarely run
 * into functions of their own, between which code jumps to and fro.
 */
static enum step follow_jumps(const struct kernel *kernel, uint64_t from, const struct symbol *function,
			      unsigned int jumps)
{
	enum step step = STEP_WRONG;
	struct symbol here, next;

	if (!jumps || !symbols_find(kernel->symbols, from, &here) || !is_text(kernel, here.start, 8))
		return STEP_WRONG;
	if (goes_on_in(&here, function))
		return STEP_JUMP;
	for (uint64_t at = here.start; at < here.end && is_text(kernel, at, 8) && step != STEP_JUMP; at++) {
		uint64_t target = jump_at(kernel, at);
		enum step further = STEP_WRONG;

		if (target && is_in(&here, target))
			continue;
		if (is_indirect_jump(kernel->text + (at - kernel->start)) ||
		    (target && is_thunk(kernel, target)))
			further = STEP_INDIRECT;
		else if (target && is_in(function, target))
			further = STEP_JUMP;
		else if (target && symbols_find(kernel->symbols, target, &next) &&
			 (next.start == target || strstr(next.name, ".cold")))
			further = follow_jumps(kernel, target, function, jumps - 1);
		if (further != STEP_WRONG)
			step = further;
	}
	return step;
}

/* Without those that tell where they lead to. */
static bool is_behind_indirect_call(const struct kernel *kernel, uint64_t address)
{
	uint8_t code[CALL_SITE_SIZE];

	memcpy(code, kernel->text + (address - sizeof(code) - kernel->start), sizeof(code));
	if (code[CALL_SITE_SIZE - CALL_SIZE] == CALL)
		code[CALL_SITE_SIZE - CALL_SIZE] = 0;
	return call_site_ends(code, sizeof(code));
}

/*
 * Where a CPU begins it returns to what it has pushed (arch/x86/kernel/head_64.S), and a new task's first
 * switch returns to what copy_thread() did.
 */
static bool is_first_code(const struct kernel *kernel, uint64_t address)
{
	struct symbol symbol;

	return symbols_find(kernel->symbols, address, &symbol) &&
	       (strstr(symbol.name, "_startup_64") ||
		(symbol.start == address && !strncmp(symbol.name, "ret_from_fork", 13)));
}

/* From a frame in FUNCTION to the one at ADDRESS. */
static enum step step_to(const struct kernel *kernel, const struct symbol *function, uint64_t address)
{
	bool direct;

	if (!is_text(kernel, address - CALL_SITE_SIZE, CALL_SITE_SIZE))
		return STEP_ELSEWHERE;
	direct = kernel->text[address - CALL_SIZE - kernel->start] == CALL;
	if (direct && is_in(function, target_of(kernel, address)))
		return STEP_CALL;
	if (function->start >= kernel->entry_start && function->start < kernel->entry_end)
		return STEP_INTERRUPTED;
	if (is_behind_indirect_call(kernel, address) ||
	    (direct && is_thunk(kernel, target_of(kernel, address))))
		return STEP_INDIRECT;
	if (direct)
		return follow_jumps(kernel, target_of(kernel, address), function, JUMPS_MAX);
	return is_first_code(kernel, address) ? STEP_FIRST : STEP_WRONG;
}

/* --- all chains -------------------------------------------------------------------- */

static void show_wrong(const struct kernel *kernel, const uint64_t *chain, size_t size, size_t wrong)
{
	struct symbol symbol;

	printf("wrong at %zu:", wrong);
	for (size_t i = 0; i < size && chain[i] < (uint64_t)PERF_CONTEXT_MAX; i++)
		if (symbols_find(kernel->symbols, chain[i], &symbol))
			printf(" %s+%#llx", symbol.name, (unsigned long long)(chain[i] - symbol.start));
		else
			printf(" %#llx", (unsigned long long)chain[i]);
	printf("\n");
}

/* One part of a chain in the kernel, up to a marker. INTERRUPTED: its innermost address is no return address.
 */
static void count_steps(struct tally *tally, const uint64_t *chain, size_t size, bool interrupted)
{
	const struct kernel *kernel = tally->kernel;
	struct symbol function;

	for (size_t i = 0; i + 1 < size && chain[i + 1] < (uint64_t)PERF_CONTEXT_MAX; i++) {
		enum step step = STEP_ELSEWHERE;

		if (symbols_find(kernel->symbols, chain[i] - !interrupted, &function))
			step = step_to(kernel, &function, chain[i + 1]);
		if (step == STEP_WRONG && tally->steps[STEP_WRONG] < WRONG_SHOWN)
			show_wrong(kernel, chain, size, i + 1);
		tally->steps[step]++;
		interrupted = step == STEP_INTERRUPTED;
	}
}

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct tally *tally = context;

	tally->begun |= sample->misc == PERF_RECORD_MISC_USER;
	for (size_t i = 0; tally->begun && i + 1 < sample->callchain_size; i++)
		if (sample->callchain[i] == (uint64_t)PERF_CONTEXT_KERNEL)
			count_steps(tally, sample->callchain + i + 1, sample->callchain_size - i - 1, !i);
	return 0;
}

static void count_recording(struct tally *tally, const char *directory)
{
	const struct perf_data_events events = { .sample = count_sample, .context = tally };
	struct perf_data_reader *reader;
	char path[256];

	snprintf(path, sizeof(path), "%s/perf.data", directory);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

void kernel_calls_check(const char *version, const char *directory)
{
	struct kernel kernel;
	struct tally tally = { .kernel = &kernel };
	const uint64_t *steps = tally.steps;
	uint64_t told, all = 0;

	if (open_kernel(&kernel, directory))
		count_recording(&tally, directory);
	told = steps[STEP_CALL] + steps[STEP_JUMP];
	printf("%s: of kernel frames %" PRIu64 " are what their caller has called, %" PRIu64
	       " what that jumps to; %" PRIu64 " were called indirectly, %" PRIu64
	       " are entries or the first, and the callers of %" PRIu64 " in modules; %" PRIu64
	       " were not called\n",
	       version, steps[STEP_CALL], steps[STEP_JUMP], steps[STEP_INDIRECT],
	       steps[STEP_INTERRUPTED] + steps[STEP_FIRST], steps[STEP_ELSEWHERE], steps[STEP_WRONG]);
	for (int i = 0; i < STEPS; i++)
		all += steps[i];
	CHECK(told >= 10000);
	CHECK(told * 2 >= all);
	/* Code that was patched since then may have called something else. */
	CHECK(steps[STEP_WRONG] * 2000 <= all);
	close_kernel(&kernel);
}
