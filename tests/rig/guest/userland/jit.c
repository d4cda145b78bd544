/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small JIT: creates functions at run time, and writes their lines to /tmp/perf-PID.map before it
 * runs them.
 *
 *	jit ROUNDS SECONDS
 *
 * runs until both are over: a busy machine takes longer for the work, a fast one does more of it,
 * and both have enough samples.
 *
 * hot_60, hot_30 and hot_10 stay at their addresses and have these shares of the iterations of
 * identical loops, so that stalls of the machine do not matter. In one more slot functions replace
 * each other: each is named even_N or odd_N, and the sampled address identifies which: the loop of
 * an even one is in the first half of its range, that of an odd one in the second. All have frame
 * pointers and call C code without.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SIZE 128u /* bytes per function */
#define LOOP 100000u
#define TURN 50u /* rounds until a function is replaced */

typedef void function(uint64_t rounds);

static uint8_t *memory;
static FILE *map;

/* In the middle of a call chain: JIT, C, JIT. */
__attribute__((noinline, optimize("omit-frame-pointer"))) void call_back(function *callee,
									 uint64_t rounds)
{
	callee(rounds);
	__asm__ volatile("" ::: "memory");
}

static size_t put(uint8_t *to, size_t at, const void *bytes, size_t size)
{
	memcpy(to + at, bytes, size);
	return at + size;
}

/*
 * push %rbp; mov %rsp,%rbp; [jmp to LOOP_AT]; 1: dec %rdi; jnz 1b; pop %rbp; ret
 */
static void make_loop(uint8_t *to, uint8_t loop_at)
{
	static const uint8_t begin[] = { 0x55, 0x48, 0x89, 0xe5, 0xeb };
	static const uint8_t loop[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3 };
	uint8_t distance = (uint8_t)(loop_at - sizeof(begin) - 1);
	size_t at;

	memset(to, 0xcc, SIZE);
	at = put(to, 0, begin, sizeof(begin));
	put(to, at, &distance, 1);
	put(to, loop_at, loop, sizeof(loop));
}

/* push %rbp; mov %rsp,%rbp; mov %rdi,%rsi; movabs CALLEE,%rdi; movabs call_back,%rax; call *%rax;
 * pop %rbp; ret */
static void make_caller(uint8_t *to, function *callee)
{
	static const uint8_t begin[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xfe, 0x48, 0xbf };
	static const uint8_t load[] = { 0x48, 0xb8 }, end[] = { 0xff, 0xd0, 0x5d, 0xc3 };
	void (*back)(function *, uint64_t) = call_back;
	size_t at;

	memset(to, 0xcc, SIZE);
	at = put(to, 0, begin, sizeof(begin));
	at = put(to, at, &callee, sizeof(callee));
	at = put(to, at, load, sizeof(load));
	at = put(to, at, &back, sizeof(back));
	put(to, at, end, sizeof(end));
}

static function *name_function(uint8_t *code, const char *name)
{
	fprintf(map, "%lx %x %s\n", (unsigned long)(uintptr_t)code, SIZE, name);
	fflush(map);
	return (function *)(uintptr_t)code;
}

static bool is_over(time_t begun, int argc, char **argv)
{
	return time(NULL) - begun >= (argc > 2 ? strtol(argv[2], NULL, 10) : 0);
}

/* Code after the call prevents a tail call. */
__attribute__((noinline)) static void run(function *what, uint64_t rounds)
{
	what(rounds);
	__asm__ volatile("" ::: "memory");
}

/* Replaces the last function by that of turn NUMBER. */
static void replace_function(uint8_t *place, unsigned long number)
{
	char name[32];

	snprintf(name, sizeof(name), "%s_%lu", number % 2 ? "odd" : "even", number);
	/* The line is written first, because a sampler must be able to know the function. */
	name_function(place, name);
	make_loop(place, number % 2 ? 0x60 : 0x10);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "hot_60", "hot_30", "hot_10" };
	static const unsigned int shares[] = { 6, 3, 1 };
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 400;
	time_t begun = time(NULL);
	function *hot[3], *caller;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	memory = mmap(NULL, 64 * 1024, PROT_READ | PROT_WRITE | PROT_EXEC,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!map || memory == MAP_FAILED) {
		perror("jit");
		return 1;
	}
	for (int i = 0; i < 3; i++) {
		uint8_t *code = memory + 4096 + (size_t)i * SIZE;

		make_loop(code, 0x20);
		hot[i] = name_function(code, names[i]);
	}
	make_caller(memory, hot[0]);
	caller = name_function(memory, "caller");
	for (unsigned long round = 0; round < rounds || !is_over(begun, argc, argv); round++) {
		run(caller, shares[0] * LOOP);
		for (int i = 1; i < 3; i++)
			run(hot[i], shares[i] * LOOP);
		if (!(round % TURN))
			replace_function(memory + 8192, round / TURN + 1);
		run((function *)(uintptr_t)(memory + 8192), shares[0] * LOOP);
	}
	printf("jit: %d\n", getpid());
	return 0;
}
