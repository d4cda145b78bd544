/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ring/search.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/ring_layout.h"
#include "tests/ring/seen.h"

#define DATA_SIZE   4096ul
#define HEADER_SIZE sizeof(struct ring_header)
#define STACK_SIZE  (64ul << 10)
#define ARENA_SIZE  (64ul << 10)
#define BUFFER_MAX  24
#define DEPTH_MAX   20000

#define WRITER 0

struct access {
	uint32_t at; /* in the memory of struct world */
	uint8_t size;
	uint8_t kind;
	bool visible;        /* to other threads */
	bool (*ready)(void); /* SEARCH_WAIT */
};

struct store {
	uint32_t at;
	uint32_t size;
	uint64_t value;
};

struct thread {
	void *stack_pointer;
	struct access next; /* the value before this step */
	bool finished;
	uint32_t buffered;
	struct store buffer[BUFFER_MAX];
};

/* Together with the stacks, everything that makes a state. */
static struct world {
	struct thread threads[SEARCH_THREADS];
	uint64_t signals_left;
	uint8_t memory[HEADER_SIZE +
		       DATA_SIZE]; /* header and data, without what is in store buffers */
	uint64_t arena_used;
	uint8_t arena[ARENA_SIZE] __attribute__((aligned(64)));
} world;

static _Alignas(64) uint8_t stacks[SEARCH_THREADS][STACK_SIZE];

/* The step that a thread does next, and where it led. */
enum action { RUN, SIGNAL, DRAIN, KILL };

struct choice {
	uint8_t thread, action;
};

static struct {
	const struct scenario *scenario;
	uint8_t *view; /* header and data as the thread VIEWER sees them, and the data once more */
	int viewer;    /* -1: nobody's */
	int thread;    /* the running thread; -1: none, and no step is stopped at */
	int last;      /* the thread that ran last */
	int thread_count;
	enum action action;
	struct access
		pending; /* the store that the running thread makes with its step; size 0: none */
	void *stack_pointer; /* of the search itself */
	bool failed;
	char failure[512];
	int depth;
	int steps; /* of the path, chosen so far */
	struct step {
		struct choice choice;
		struct access access;
		uint64_t value;
		uint8_t *saved;
		size_t saved_size;
	} path[DEPTH_MAX];
} now;

/* Saves the callee-saved registers and continues at TO. */
void switch_stack(void **from, void *to);
__asm__(".text\n"
	".type switch_stack, @function\n"
	"switch_stack:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size switch_stack, . - switch_stack\n");

/* --- memory ------------------------------------------------------------- */

void *search_shared(void)
{
	return now.view;
}

void *search_allocate(size_t size)
{
	void *memory = world.arena + world.arena_used;

	world.arena_used += (size + 63) & ~63ul;
	if (world.arena_used > sizeof(world.arena))
		abort();
	return memory;
}

static void map_shared(void)
{
	int fd = memfd_create("ring-search", MFD_CLOEXEC);
	uint8_t *at = mmap(NULL, RING_DATA_OFFSET + 2 * DATA_SIZE, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int flags = MAP_SHARED | MAP_FIXED, protection = PROT_READ | PROT_WRITE;

	if (fd < 0 || at == MAP_FAILED || ftruncate(fd, RING_DATA_OFFSET + DATA_SIZE) ||
	    mmap(at, RING_DATA_OFFSET + DATA_SIZE, protection, flags, fd, 0) == MAP_FAILED ||
	    mmap(at + RING_DATA_OFFSET + DATA_SIZE, DATA_SIZE, protection, flags, fd,
		 RING_DATA_OFFSET) == MAP_FAILED)
		abort();
	close(fd);
	now.view = at;
}

/* The address in the view that corresponds to AT in the world's memory. */
static uint8_t *in_view(uint32_t at)
{
	return now.view + (at < HEADER_SIZE ? at : at - HEADER_SIZE + RING_DATA_OFFSET);
}

static bool is_shared(const volatile void *address, uint32_t *at)
{
	size_t offset = (const volatile uint8_t *)address - now.view;

	if ((const volatile uint8_t *)address < now.view ||
	    offset >= RING_DATA_OFFSET + 2 * DATA_SIZE)
		return false;
	if (offset < RING_DATA_OFFSET) {
		if (offset >= HEADER_SIZE)
			abort();
		*at = offset;
	} else {
		*at = HEADER_SIZE + (offset - RING_DATA_OFFSET) % DATA_SIZE;
	}
	return true;
}

static void view_memory(void)
{
	memcpy(now.view, world.memory, HEADER_SIZE);
	memcpy(now.view + RING_DATA_OFFSET, world.memory + HEADER_SIZE, DATA_SIZE);
	now.viewer = -1;
}

static void view_as(int number)
{
	const struct thread *thread = &world.threads[number];

	if (now.viewer == number)
		return;
	view_memory();
	for (uint32_t i = 0; i < thread->buffered; i++)
		memcpy(in_view(thread->buffer[i].at), &thread->buffer[i].value,
		       thread->buffer[i].size);
	now.viewer = number;
}

static void keep_view(void)
{
	memcpy(world.memory, now.view, HEADER_SIZE);
	memcpy(world.memory + HEADER_SIZE, now.view + RING_DATA_OFFSET, DATA_SIZE);
}

/* Applies the oldest store of a thread's buffer to memory. */
static void drain(struct thread *thread)
{
	memcpy(world.memory + thread->buffer[0].at, &thread->buffer[0].value,
	       thread->buffer[0].size);
	thread->buffered--;
	memmove(thread->buffer, thread->buffer + 1, thread->buffered * sizeof(thread->buffer[0]));
	memset(&thread->buffer[thread->buffered], 0, sizeof(thread->buffer[0]));
	now.viewer = -1;
}

static void drain_all(void)
{
	for (int i = 0; i < now.thread_count; i++)
		while (world.threads[i].buffered)
			drain(&world.threads[i]);
	view_memory();
}

static bool is_locked(int number, enum search_access kind)
{
	return kind == SEARCH_LOCKED || kind == SEARCH_FENCE ||
	       (kind == SEARCH_UPDATE && number != WRITER);
}

/* The store of the thread's step goes to its buffer, or directly to memory. */
static void collect_store(int number)
{
	struct thread *thread = &world.threads[number];
	struct store store = { .at = now.pending.at, .size = now.pending.size };

	if (!store.size)
		return;
	memcpy(&store.value, in_view(store.at), store.size);
	if (now.scenario->store_buffers && !is_locked(number, now.pending.kind))
		thread->buffer[thread->buffered++] = store;
	else
		memcpy(world.memory + store.at, &store.value, store.size);
	now.path[now.depth].value = store.value;
	now.pending.size = 0;
}

/*
 * Checks that each store of the thread was a step: the search cannot restore stores that it does
 * not see.
 */
static void check_view(void)
{
	if (!now.scenario->store_buffers &&
	    (memcmp(now.view, world.memory, HEADER_SIZE) ||
	     memcmp(now.view + RING_DATA_OFFSET, world.memory + HEADER_SIZE, DATA_SIZE)))
		search_fail(__FILE__, __LINE__, "a store that was not a step of the search");
}

/* --- threads ------------------------------------------------------------ */

static void stop(void)
{
	int number = now.thread;

	switch_stack(&world.threads[number].stack_pointer, now.stack_pointer);
}

void search_point(const volatile void *address, size_t size, enum search_access kind)
{
	struct access access = { .size = size, .kind = kind };
	bool private;

	if (now.thread < 0)
		return;
	access.visible = is_shared(address, &access.at);
	/* A locked instruction on any word is a fence. */
	if (kind == SEARCH_LOCKED && !access.visible)
		access = (struct access){ .size = size,
					  .kind = kind = SEARCH_FENCE,
					  .visible = true };
	private = (const volatile uint8_t *)address >= world.arena &&
		  (const volatile uint8_t *)address < world.arena + sizeof(world.arena);
	if (!access.visible && !(private && now.thread == WRITER && world.signals_left))
		return;
	if (size > 8)
		abort();
	for (;;) {
		world.threads[now.thread].next = access;
		stop();
		if (now.action != SIGNAL)
			break;
		world.signals_left--;
		now.scenario->handler();
	}
	if (access.visible && kind != SEARCH_LOAD && kind != SEARCH_FENCE)
		now.pending = access;
}

void search_wait(bool (*ready)(void))
{
	if (now.thread < 0)
		abort();
	world.threads[now.thread].next =
		(struct access){ .kind = SEARCH_WAIT, .visible = true, .ready = ready };
	stop();
}

int search_thread(void)
{
	return now.thread;
}

static void thread_main(void)
{
	now.scenario->threads[now.thread]();
	world.threads[now.thread].finished = true;
	world.threads[now.thread].next = (struct access){ 0 };
	for (;;)
		stop();
}

static void make_thread(int number)
{
	uint8_t *top = stacks[number] + STACK_SIZE;
	void **words = (void **)top;

	memset(stacks[number], 0, STACK_SIZE);
	words[-2] = (void *)thread_main;
	world.threads[number].stack_pointer = words - 8;
}

static size_t stack_used(int number)
{
	return stacks[number] + STACK_SIZE - (uint8_t *)world.threads[number].stack_pointer;
}

/* Stale content below the stack pointer must not distinguish states. */
static void clear_below(int number)
{
	uint8_t *pointer = world.threads[number].stack_pointer;

	memset(pointer - 1024, 0, 1024);
}

static void take(struct choice choice)
{
	struct thread *thread = &world.threads[choice.thread];

	now.path[now.depth].choice = choice;
	now.path[now.depth].access = thread->next;
	now.path[now.depth].value = 0;
	now.steps = now.depth + 1;
	if (choice.action == DRAIN) {
		drain(thread);
		return;
	}
	if (choice.action == KILL) {
		thread->finished = true;
		thread->next = (struct access){ 0 };
		world_died(choice.thread);
		return;
	}
	view_as(choice.thread);
	clear_below(choice.thread);
	now.thread = now.last = choice.thread;
	now.action = choice.action;
	switch_stack(&now.stack_pointer, thread->stack_pointer);
	now.thread = -1;
	collect_store(choice.thread);
	check_view();
}

/* --- states ------------------------------------------------------------- */

static size_t world_used(void)
{
	return offsetof(struct world, arena) + world.arena_used;
}

static uint64_t hash_state(void)
{
	uint64_t hash = seen_hash(1, &world, world_used());

	hash = seen_hash(hash, now.scenario->state, now.scenario->state_size);
	for (int i = 0; i < now.thread_count; i++)
		hash = seen_hash(hash, world.threads[i].stack_pointer, stack_used(i));
	return hash ? hash : 1;
}

static void *put(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return (uint8_t *)to + size;
}

static const void *get(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return (const uint8_t *)from + size;
}

static void save(void)
{
	struct step *step = &now.path[now.depth];
	size_t size = world_used() + now.scenario->state_size;
	void *at;

	for (int i = 0; i < now.thread_count; i++)
		size += stack_used(i);
	if (size > step->saved_size) {
		free(step->saved);
		step->saved_size = size + 1024;
		step->saved = malloc(step->saved_size);
		if (!step->saved)
			abort();
	}
	at = put(step->saved, &world, world_used());
	at = put(at, now.scenario->state, now.scenario->state_size);
	for (int i = 0; i < now.thread_count; i++)
		at = put(at, world.threads[i].stack_pointer, stack_used(i));
}

static void restore(void)
{
	const struct step *step = &now.path[now.depth];
	const void *at = step->saved + offsetof(struct world, arena);

	memcpy(&world, step->saved, offsetof(struct world, arena));
	at = get(world.arena, at, world.arena_used);
	at = get(now.scenario->state, at, now.scenario->state_size);
	for (int i = 0; i < now.thread_count; i++)
		at = get(world.threads[i].stack_pointer, at, stack_used(i));
	now.viewer = -1;
}

/* --- the search ----------------------------------------------------------- */

/* States, and the memory left by a killed writer. */
static struct seen_table states, remains;

void search_fail(const char *file, int line, const char *format, ...)
{
	va_list arguments;
	int length;

	if (!now.failed) {
		length = snprintf(now.failure, sizeof(now.failure), "%s:%d: ", file, line);
		va_start(arguments, format);
		vsnprintf(now.failure + length, sizeof(now.failure) - length, format, arguments);
		va_end(arguments);
		now.failed = true;
	}
	if (now.thread >= 0)
		stop();
}

static bool can_run(int number)
{
	const struct thread *thread = &world.threads[number];

	if (thread->finished)
		return false;
	if (thread->next.kind == SEARCH_WAIT)
		return thread->next.ready();
	if (!now.scenario->store_buffers || !thread->next.visible)
		return true;
	if (is_locked(number, thread->next.kind))
		return !thread->buffered;
	return thread->next.kind == SEARCH_LOAD ||
	       (int)thread->buffered < now.scenario->store_buffers;
}

static int choices_of(int number, struct choice *choices)
{
	int count = 0;

	if (can_run(number))
		choices[count++] = (struct choice){ number, RUN };
	/* There is no step before a thread's first one. */
	if (number == WRITER && world.signals_left && world.threads[number].next.size)
		choices[count++] = (struct choice){ number, SIGNAL };
	if (number && number == now.scenario->mortal && !world.threads[number].finished)
		choices[count++] = (struct choice){ number, KILL };
	return count;
}

#define CHOICES_MAX (4 * SEARCH_THREADS)

static int list_choices(struct choice *choices)
{
	int count = 0;

	/* A step that other threads cannot observe goes first, and alone. */
	for (int i = 0; i < now.thread_count; i++)
		if (!world.threads[i].finished && !world.threads[i].next.visible)
			return choices_of(i, choices);
	/*
	 * The thread that ran last goes first, so that the first failure has few thread switches.
	 */
	for (int i = 0; i < now.thread_count; i++)
		count += choices_of((now.last + i) % now.thread_count, choices + count);
	for (int i = 0; i < now.thread_count; i++)
		if (world.threads[i].buffered)
			choices[count++] = (struct choice){ i, DRAIN };
	return count;
}

/* The writer is killed at this point: its stores are visible, and nothing follows. */
static void kill_writer(void)
{
	bool new;

	drain_all();
	keep_view();
	seen_enter(&remains, seen_hash(1, world.memory, sizeof(world.memory)) | 1, &new);
	if (new)
		now.scenario->killed();
}

static void finish(void)
{
	for (int i = 0; i < now.thread_count; i++)
		if (!world.threads[i].finished)
			search_fail(__FILE__, __LINE__, "thread %d waits forever", i);
	view_memory();
	now.scenario->end();
	now.viewer = -1;
}

static double search_from(int depth)
{
	struct choice choices[CHOICES_MAX];
	uint64_t hash = hash_state();
	double interleavings = 0;
	bool new;
	struct seen *seen = seen_enter(&states, hash, &new);
	int count;

	if (!new)
		return seen->interleavings;
	if (depth + 1 >= DEPTH_MAX)
		abort();
	count = list_choices(choices);
	now.depth = now.steps = depth;
	if (count > 1 || now.scenario->killed)
		save();
	if (now.scenario->killed) {
		kill_writer();
		restore();
	}
	if (!count) {
		finish();
		interleavings = 1;
	}
	for (int i = 0; i < count && !now.failed; i++) {
		now.depth = depth;
		if (i)
			restore();
		take(choices[i]);
		if (!now.failed)
			interleavings += search_from(depth + 1);
	}
	seen_find(&states, hash)->interleavings = interleavings;
	return interleavings;
}

static const char *name_of(uint32_t at)
{
	static const struct {
		size_t at;
		const char *name;
	} words[] = {
		{ offsetof(struct ring_header, data_head), "data_head" },
		{ offsetof(struct ring_header, data_floor), "data_floor" },
		{ offsetof(struct ring_header, wanted_floor), "wanted_floor" },
		{ offsetof(struct ring_header, written), "written" },
		{ offsetof(struct ring_header, lost), "lost" },
		{ offsetof(struct ring_header, discarded), "discarded" },
		{ offsetof(struct ring_header, opened), "opened" },
		{ offsetof(struct ring_header, holders), "holders" },
	};
	static char text[32];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].at == at)
			return words[i].name;
	if (at >= offsetof(struct ring_header, consumers) && at < HEADER_SIZE)
		snprintf(text, sizeof(text), "consumers[%zu]+%zu",
			 (at - offsetof(struct ring_header, consumers)) /
				 sizeof(struct ring_consumer),
			 (at - offsetof(struct ring_header, consumers)) %
				 sizeof(struct ring_consumer));
	else if (at < HEADER_SIZE)
		snprintf(text, sizeof(text), "header+%u", at);
	else
		snprintf(text, sizeof(text), "data+%u", (unsigned)(at - HEADER_SIZE));
	return text;
}

static void print_path(void)
{
	static const char *const kinds[] = { "loads",           "stores", "updates",
					     "updates, locked", "fence",  "waited" };

	printf("%s: %s\nafter these steps:\n", now.scenario->name, now.failure);
	for (int i = 0; i < now.steps; i++) {
		const struct step *step = &now.path[i];

		printf("  thread %d ", step->choice.thread);
		if (step->choice.action == DRAIN)
			printf("oldest store leaves the buffer\n");
		else if (step->choice.action == KILL)
			printf("is killed\n");
		else if (step->choice.action == SIGNAL)
			printf("is interrupted by its handler\n");
		else if (!step->access.size)
			printf("starts\n");
		else if (!step->access.visible)
			printf("accesses a private word\n");
		else
			printf("%s %s (%llu)\n", kinds[step->access.kind], name_of(step->access.at),
			       (unsigned long long)step->value);
	}
}

static void start(const struct scenario *scenario)
{
	if (!now.view)
		map_shared();
	memset(&world, 0, sizeof(world));
	memset(scenario->state, 0, scenario->state_size);
	free(states.slots);
	free(remains.slots);
	states = remains = (struct seen_table){ 0 };
	now.scenario = scenario;
	now.thread = -1;
	now.last = WRITER;
	now.failed = false;
	now.pending.size = 0;
	now.thread_count = 0;
	view_memory();
	scenario->setup();
	keep_view();
	now.viewer = -1;
	world.signals_left = scenario->signals;
	while (now.thread_count < SEARCH_THREADS && scenario->threads[now.thread_count])
		make_thread(now.thread_count++);
}

void search(const struct scenario *scenario, struct search_result *result)
{
	start(scenario);
	now.depth = 0;
	result->interleavings = search_from(0);
	result->states = states.used;
	result->failed = now.failed;
	if (now.failed)
		print_path();
}
