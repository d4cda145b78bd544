/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/gap_guest.h"

#include <pthread.h>
#include <unistd.h>
#include <x86intrin.h>

#include "tests/bench/bench.h"

/*
 * GPAs of the guest's output, in TSC cycles of the guest: the number of gaps so far, the current
 * TSC, and the latest gaps.
 */
#define COUNT 0x80000ull
#define NOW   0x80008ull
#define GAPS  0x100000ull

#define WINDOW      1000000000ull /* ns of CPU time */
#define CLOCK_TRIES 100
#define AHEAD_TIME  20000000ull /* ns of CPU time, in which the two clocks are compared */

/*
 *	mov ecx, 8; 3: call 4f; 4: push rbp; mov rbp, rsp; dec ecx; jnz 3b
 *	mov edi, COUNT; mov esi, GAPS; xor r9d, r9d; rdtsc; shl rdx, 32; or rax, rdx; mov r8, rax
 * 1:	rdtsc; shl rdx, 32; or rax, rdx; mov [rdi + 8], rax; mov rcx, rax; sub rcx, r8; mov r8, rax
 *	cmp rcx, 2048; jb 1b
 *	mov rdx, r9; and edx, GAP_WINDOW_MAX - 1; shl rdx, 4; mov [rsi + rdx], rax; mov [rsi + rdx +
 *8], rcx inc r9; mov [rdi], r9; jmp 1b
 */
const uint8_t gap_guest_code[GAP_GUEST_CODE_SIZE] = {
	0xb9, 0x08, 0x00, 0x00, 0x00, 0xe8, 0x00, 0x00, 0x00, 0x00, 0x55, 0x48, 0x89, 0xe5, 0xff,
	0xc9, 0x75, 0xf3, 0xbf, 0x00, 0x00, 0x08, 0x00, 0xbe, 0x00, 0x00, 0x10, 0x00, 0x45, 0x31,
	0xc9, 0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0x49, 0x89, 0xc0, 0x0f, 0x31,
	0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0x48, 0x89, 0x47, 0x08, 0x48, 0x89, 0xc1, 0x4c,
	0x29, 0xc1, 0x49, 0x89, 0xc0, 0x48, 0x81, 0xf9, 0x00, 0x08, 0x00, 0x00, 0x72, 0xe1, 0x4c,
	0x89, 0xca, 0x81, 0xe2, 0xff, 0x7f, 0x00, 0x00, 0x48, 0xc1, 0xe2, 0x04, 0x48, 0x89, 0x04,
	0x16, 0x48, 0x89, 0x4c, 0x16, 0x08, 0x49, 0xff, 0xc1, 0x4c, 0x89, 0x0f, 0xeb, 0xc3,
};

/* One moment on both clocks. */
struct moment {
	uint64_t turns; /* TSC of the host */
	uint64_t time;  /* ns */
};

static uint64_t read_word(struct sampled_guest *guest, uint64_t gpa)
{
	uint64_t word;

	memory_read(&guest->vm.memory, gpa, &word, sizeof(word));
	return word;
}

/*
 * At the best moments, the TSC that the guest wrote last is the current one, because the guest runs
 * in parallel. Its offset never changes, so the best value of all windows is used.
 */
static void learn_ahead(struct sampled_guest *guest, clockid_t clock, int64_t *most)
{
	uint64_t begun = bench_time(clock);

	do {
		for (int i = 0; i < 1000; i++) {
			int64_t ahead = (int64_t)(read_word(guest, NOW) - __rdtsc());

			*most = ahead > *most ? ahead : *most;
		}
	} while (bench_time(clock) - begun < AHEAD_TIME);
}

/* The quickest try; something intervened in the others. */
static struct moment now(void)
{
	struct moment moment = { 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < CLOCK_TRIES; i++) {
		uint64_t before = __rdtsc(), time = bench_time(CLOCK_MONOTONIC_RAW);
		uint64_t took = __rdtsc() - before;

		if (took >= least)
			continue;
		least = took;
		moment = (struct moment){ before + took / 2, time };
	}
	return moment;
}

/* The gaps of the window that have not been overwritten. */
static void read_gaps(struct sampled_guest *guest, uint64_t from, uint64_t to,
		      struct gap_window *window)
{
	window->count = to - from < GAP_WINDOW_MAX ? to - from : GAP_WINDOW_MAX;
	for (uint64_t i = 0; i < window->count; i++) {
		uint64_t place = (to - window->count + i) % GAP_WINDOW_MAX;

		memory_read(&guest->vm.memory, GAPS + place * sizeof(struct gap), &window->gaps[i],
			    sizeof(struct gap));
	}
}

static void translate(struct gap_window *window, int64_t ahead, const struct moment *first,
		      const struct moment *last)
{
	double scale = (double)(last->time - first->time) / (double)(last->turns - first->turns);

	for (uint64_t i = 0; i < window->count; i++) {
		struct gap *gap = &window->gaps[i];

		gap->end = first->time +
			   (uint64_t)((double)(gap->end - (uint64_t)ahead - first->turns) * scale);
		gap->length = (uint64_t)((double)gap->length * scale);
	}
}

void gap_guest_measure(struct sampled_guest *guest, int64_t *ahead, struct gap_window *window)
{
	struct moment first, last;
	uint64_t from, to, begun;
	clockid_t clock;

	pthread_getcpuclockid(guest->cpus[0].thread, &clock);
	from = read_word(guest, COUNT);
	begun = bench_time(clock);
	first = now();
	while (bench_time(clock) - begun < WINDOW)
		usleep(20000);
	last = now();
	to = read_word(guest, COUNT);
	read_gaps(guest, from, to, window);
	learn_ahead(guest, clock, ahead);
	translate(window, *ahead, &first, &last);
}

/* The first gap that ends after TIME, if it has begun. */
bool gap_window_find(const struct gap_window *window, uint64_t time, size_t *found)
{
	size_t low = 0, high = window->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (window->gaps[middle].end < time)
			low = middle + 1;
		else
			high = middle;
	}
	*found = low;
	return low < window->count && window->gaps[low].end - window->gaps[low].length <= time;
}
