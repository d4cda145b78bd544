/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for RSP on stacks of generated programs, whose calls are simulated, so that the truth
 * is known: whatever stale values are on the stack, no caller may be wrong.
 */
#include <stdio.h>

#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/stack_search.h"

#define GUEST_SIZE 0x200000u
#define TEXT       0xffffffff81000000ull
#define TEXT_GPA   0x30000ull
#define IPS        0xffffffff82000000ull
#define STACK      0xffffc90000010000ull
#define STACK_GPA  0x10000ull
#define STACK_SIZE 0x4000u
#define STACK_END  (STACK + STACK_SIZE)
#define FUNCTIONS  64u /* the last is the entry */
#define ENTRY      (FUNCTIONS - 1)
#define FUNCTION   128u /* bytes */
#define CALLS      6u   /* of a function */
#define DEPTH_MAX  24u
#define TAKEN      16u /* functions that are called indirectly, in a table after the code */
#define TABLE      (TEXT + FUNCTIONS * FUNCTION)
#define DATA_SIZE  4096u
#define REGISTERS  168u /* struct pt_regs */
/* ORC entries in the format since 6.4. */
#define CALL_SP 0x205
#define REGS_SP 0xb05

struct function {
	uint16_t frame; /* bytes, with the return address */
	uint8_t callee[CALLS];
	bool indirect[CALLS];
	uint8_t jumps_to; /* a tail call; 0: none */
};

struct program {
	struct flat_guest guest;
	uint8_t ips[FUNCTIONS * 8], entries[FUNCTIONS * 2 * ORC_ENTRY_SIZE];
	struct orc_table table;
	struct kernel_orc orc;
	struct symbols *symbols;
	struct stack_search *search;
	struct function functions[FUNCTIONS];
	uint64_t random;
	/* The simulated call stack: the outermost frame first. */
	uint64_t addresses[DEPTH_MAX];
	uint64_t sp[DEPTH_MAX]; /* in the frame */
	uint8_t in[DEPTH_MAX];
	unsigned int depth;
	struct stack_search_result result;
};

static uint32_t draw(struct program *program, uint32_t below)
{
	program->random = program->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(program->random >> 33) % below;
}

static uint64_t start_of(unsigned int function)
{
	return TEXT + function * FUNCTION;
}

/* A function sets up its frame in its first 4 bytes. Its calls end at 16, 32, ... */
static uint64_t return_address(unsigned int function, unsigned int call)
{
	return start_of(function) + 16 * (call + 1);
}

static uint8_t *text(struct program *program, uint64_t address)
{
	return program->guest.memory + TEXT_GPA + (address - TEXT);
}

static void put_relative(struct program *program, uint64_t end, uint8_t opcode, uint64_t target)
{
	int32_t distance = (int32_t)(target - end);

	*text(program, end - 5) = opcode;
	memcpy(text(program, end - 4), &distance, sizeof(distance));
}

static void put_entry(struct program *program, unsigned int index, uint64_t address, uint16_t size,
		      uint16_t flags)
{
	int32_t relative = (int32_t)(address - (IPS + index * 4));
	uint8_t *entry = program->entries + index * ORC_ENTRY_SIZE;

	memcpy(program->ips + index * 4, &relative, 4);
	memcpy(entry, &size, 2);
	memcpy(entry + 4, &flags, 2);
}

static void put_function(struct program *program, unsigned int number)
{
	struct function *function = &program->functions[number];
	char name[16];

	snprintf(name, sizeof(name), "f%u", number);
	symbols_add(program->symbols, start_of(number), FUNCTION, 't', name, NULL);
	function->frame = number == ENTRY ? 0 : (uint16_t)(8 * (1 + draw(program, 6)));
	put_entry(program, number * 2, start_of(number), number == ENTRY ? 0 : 8,
		  number == ENTRY ? REGS_SP : CALL_SP);
	put_entry(program, number * 2 + 1, start_of(number) + 4, function->frame,
		  number == ENTRY ? REGS_SP : CALL_SP);
	for (unsigned int i = 0; i < CALLS; i++) {
		function->callee[i] = (uint8_t)draw(program, ENTRY);
		function->indirect[i] = number != ENTRY && !draw(program, 6);
		if (function->indirect[i])
			memcpy(text(program, return_address(number, i)) - 2, "\xff\xd0", 2);
		else
			put_relative(program, return_address(number, i), 0xe8,
				     start_of(function->callee[i]));
	}
	if (number != ENTRY && !draw(program, 8)) {
		function->jumps_to = (uint8_t)(1 + draw(program, ENTRY - 1));
		put_relative(program, start_of(number) + 120, 0xe9, start_of(function->jumps_to));
	}
}

static void make(struct program *program, uint64_t seed)
{
	struct guest_registers *registers = &program->guest.registers;

	memset(program, 0, sizeof(*program));
	program->random = seed;
	flat_guest_create(&program->guest, GUEST_SIZE);
	for (uint64_t at = 0; at < STACK_SIZE; at += 4096)
		flat_guest_map(&program->guest, registers->paging.cr3, STACK + at, STACK_GPA + at,
			       4096, 0);
	for (uint64_t at = 0; at < FUNCTIONS * FUNCTION + DATA_SIZE; at += 4096)
		flat_guest_map(&program->guest, registers->paging.cr3, TEXT + at, TEXT_GPA + at,
			       4096, 0);
	program->symbols = symbols_new();
	for (unsigned int i = 0; i < FUNCTIONS; i++)
		put_function(program, i);
	symbols_add(program->symbols, TEXT, 0, 'T', "_text", NULL);
	symbols_add(program->symbols, TABLE, 0, 'T', "_etext", NULL);
	symbols_add(program->symbols, TABLE + DATA_SIZE, 0, 'B', "_end", NULL);
	for (uint64_t i = 0; i < TAKEN; i++)
		flat_guest_write_u64(&program->guest, TEXT_GPA + FUNCTIONS * FUNCTION + i * 8,
				     start_of((unsigned int)i));
	symbols_finish(program->symbols);
	program->search =
		stack_search_new(program->symbols, &program->guest.view, &registers->paging);
	program->table = (struct orc_table){ .start = TEXT,
					     .end = TEXT + FUNCTIONS * FUNCTION,
					     .ips_gva = IPS,
					     .ips = program->ips,
					     .entries = program->entries,
					     .count = FUNCTIONS * 2 };
	program->orc = (struct kernel_orc){ .paging = registers->paging,
					    .format = ORC_FORMAT_SIGNAL,
					    .tables = &program->table,
					    .table_count = 1 };
}

static void destroy(struct program *program)
{
	stack_search_free(program->search);
	symbols_free(program->symbols);
	flat_guest_destroy(&program->guest);
}

static void push(struct program *program, uint64_t gva, uint64_t value)
{
	flat_guest_write_u64(&program->guest, STACK_GPA + (gva - STACK), value);
}

/* The system call entry: struct pt_regs at the end of the stack. */
static void enter(struct program *program)
{
	uint64_t regs = STACK_END - REGISTERS;

	push(program, regs + 16 * 8, 0x401000);
	push(program, regs + 17 * 8, 0x33);
	push(program, regs + 19 * 8, 0x7ffc00000000);
	program->depth = 1;
	program->in[0] = ENTRY;
	program->sp[0] = regs;
}

static bool call(struct program *program)
{
	unsigned int at = program->depth - 1, number = program->in[at];
	unsigned int site = draw(program, CALLS);
	const struct function *function = &program->functions[number];
	unsigned int callee =
		function->indirect[site] ? draw(program, TAKEN) : function->callee[site];

	if (program->depth == DEPTH_MAX)
		return false;
	program->addresses[at] = return_address(number, site);
	push(program, program->sp[at] - 8, program->addresses[at]);
	if (program->functions[callee].jumps_to && !draw(program, 2))
		callee = program->functions[callee].jumps_to;
	program->in[at + 1] = (uint8_t)callee;
	program->sp[at + 1] = program->sp[at] - program->functions[callee].frame;
	/* Some of its words are written, the others keep what they had. */
	for (uint64_t word = program->sp[at + 1]; word < program->sp[at] - 8; word += 8)
		if (!draw(program, 3))
			push(program, word, draw(program, 4) ? 0 : TEXT + draw(program, 0x2000));
	program->depth++;
	return true;
}

static void run(struct program *program, unsigned int steps)
{
	for (unsigned int i = 0; i < steps; i++)
		if (program->depth == 1 || draw(program, 100) < 55)
			call(program);
		else
			program->depth--;
}

/* Stops in the innermost function, in its frame or before it is set up. */
static void sample(struct program *program)
{
	unsigned int at = program->depth - 1;
	struct guest_registers registers = program->guest.registers;
	const struct stack_search_input input = { .orc = &program->orc,
						  .view = &program->guest.view,
						  .registers = &registers,
						  .stacks = { { STACK, STACK_END, true } },
						  .stack_count = 1 };

	registers.rip = start_of(program->in[at]) + (draw(program, 4) ? 8 : 0);
	program->addresses[at] = registers.rip;
	stack_search_run(program->search, &input, &program->result);
}

/* False: a caller is wrong. */
static bool is_right(const struct program *program)
{
	const struct stack_search_result *result = &program->result;

	for (unsigned int i = 0; i < result->depth; i++)
		if (i >= program->depth ||
		    result->addresses[i] != program->addresses[program->depth - 1 - i])
			return false;
	return !result->whole || result->depth == program->depth;
}

TEST(stack_search, generated_programs_have_no_wrong_caller)
{
	unsigned int samples = 0, whole = 0, found = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct program program;

		make(&program, seed);
		enter(&program);
		for (int i = 0; i < 200; i++) {
			run(&program, 1 + draw(&program, 30));
			if (program.depth == 1)
				call(&program);
			sample(&program);
			samples++;
			whole += program.result.whole;
			found += program.result.candidates > 0;
			if (!is_right(&program))
				FAIL_TEST("seed %d, sample %d: a caller is wrong", (int)seed, i);
			CHECK(program.result.steps <= STACK_SEARCH_STEPS_MAX);
		}
		destroy(&program);
	}
	printf("of %u samples, %u have a chain, %u a whole one\n", samples, found, whole);
	CHECK_EQUAL(found, samples);
	CHECK(whole > samples / 3);
}

/* Every word of the stack is a return address of a call that may lead anywhere: each is a candidate
 * with a chain to the end of the stack. */
TEST(stack_search, work_is_bounded)
{
	struct program program;
	struct stack_search_result *result = &program.result;
	unsigned int function = 0, site;

	make(&program, 7);
	while (program.functions[function].frame != 8 || function >= TAKEN)
		function = (function + 1) % ENTRY;
	site = 0;
	memcpy(text(&program, return_address(function, site)) - 5, "\x90\x90\x90\xff\xd0", 5);
	enter(&program);
	for (uint64_t at = STACK; at < program.sp[0]; at += 8)
		push(&program, at, return_address(function, site));
	program.in[1] = (uint8_t)function;
	program.depth = 2;
	sample(&program);
	CHECK_EQUAL(result->steps, STACK_SEARCH_STEPS_MAX);
	CHECK_EQUAL(result->candidates, 0);
	CHECK_EQUAL(result->depth, 1);
	CHECK(!result->whole);
	destroy(&program);
}
