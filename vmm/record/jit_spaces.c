// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/jit_spaces.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm/symbols/jit_image.h"

#define BUCKETS 256u
/* Ranges that a file says something of; a guest that fills this has no names from there on. */
#define RANGES_MAX 65536u
/* A range with its node of the tree, which tsearch(3) allocates: three pointers and what the heap
 * needs. */
#define RANGE_COST (sizeof(struct range) + 48)

/* The file says that a function of an image is here. */
struct range {
	uint64_t start, end;
	uint64_t place;
};

struct space {
	struct space *next; /* of the bucket */
	uint32_t pid;
	void *ranges; /* tree, tsearch(3): no two at one address */
};

struct jit_spaces {
	struct guest_account *account;
	struct space *buckets[BUCKETS];
	size_t ranges;
};

struct jit_spaces *jit_spaces_new(struct guest_account *account)
{
	struct jit_spaces *spaces = calloc(1, sizeof(*spaces));

	if (spaces)
		spaces->account = account;
	return spaces;
}

/* Ranges that overlap are equal. */
static int compare(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	return a->end <= b->start ? -1 : a->start >= b->end;
}

static struct space **find_space(struct jit_spaces *spaces, uint32_t pid)
{
	struct space **at = &spaces->buckets[pid % BUCKETS];

	while (*at && (*at)->pid != pid)
		at = &(*at)->next;
	return at;
}

static struct range *find_range(const struct space *space, uint64_t start, uint64_t end)
{
	const struct range key = { .start = start, .end = end };
	void *found = tfind(&key, &space->ranges, compare);

	return found ? *(struct range **)found : NULL;
}

static void remove_range(struct jit_spaces *spaces, struct space *space, struct range *range)
{
	tdelete(range, &space->ranges, compare);
	guest_account_free(spaces->account, range, RANGE_COST);
	spaces->ranges--;
}

static void remove_space(struct jit_spaces *spaces, uint32_t pid)
{
	struct space **at = find_space(spaces, pid), *space = *at;

	if (!space)
		return;
	while (space->ranges)
		remove_range(spaces, space, *(struct range **)space->ranges);
	*at = space->next;
	guest_account_free(spaces->account, space, sizeof(*space));
}

void jit_spaces_free(struct jit_spaces *spaces)
{
	if (!spaces)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while (spaces->buckets[i])
			remove_space(spaces, spaces->buckets[i]->pid);
	free(spaces);
}

static struct space *need_space(struct jit_spaces *spaces, uint32_t pid)
{
	struct space **at = find_space(spaces, pid);

	if (!*at) {
		*at = guest_account_new(spaces->account, sizeof(**at));
		if (*at)
			(*at)->pid = pid;
	}
	return *at;
}

static bool add_range(struct jit_spaces *spaces, struct space *space, const struct range *from)
{
	struct range *range =
		spaces->ranges < RANGES_MAX ? guest_account_new(spaces->account, RANGE_COST) : NULL;

	if (!range)
		return false;
	*range = *from;
	if (!tsearch(range, &space->ranges, compare)) {
		guest_account_free(spaces->account, range, RANGE_COST);
		return false;
	}
	spaces->ranges++;
	return true;
}

/* --- what the file is told ---------------------------------------------------- */

struct telling {
	struct jit_spaces *spaces;
	const struct jit_spaces_teller *teller;
	uint64_t time; /* ns, of what is told */
	uint32_t pid;
};

static int tell_mapping(const struct telling *telling, const struct sideband_mmap *what,
			const char *name)
{
	uint64_t bytes[(sizeof(*what) + 64) / 8];
	struct sideband_mmap *record = (struct sideband_mmap *)bytes;

	*record = *what;
	record->head = (struct sideband){ .size = sideband_size(sizeof(*record), name),
					  .type = SIDEBAND_MMAP,
					  .time = telling->time,
					  .pid = telling->pid,
					  .tid = telling->pid };
	record->prot = PROT_READ | PROT_EXEC;
	record->map_flags = MAP_PRIVATE;
	memcpy(record->name, name, strlen(name) + 1);
	return telling->teller->tell(telling->teller->context, &record->head);
}

static int tell_function(const struct telling *telling, const struct jit_function *function)
{
	struct sideband_mmap mmap = { .start = function->start,
				      .length = function->end - function->start,
				      .offset = function->place,
				      .build_id_size = SIDEBAND_BUILD_ID_MAX };
	char name[32];

	snprintf(name, sizeof(name), JIT_IMAGE_NAME "%u.so", telling->pid);
	memcpy(mmap.build_id, function->build_id, sizeof(mmap.build_id));
	return tell_mapping(telling, &mmap, name);
}

static int tell_anonymous(const struct telling *telling, const struct range *range)
{
	const struct sideband_mmap mmap = { .start = range->start,
					    .length = range->end - range->start,
					    .offset = range->start };

	return tell_mapping(telling, &mmap, "//anon");
}

/* Nothing is said of [START, END) any more. */
static int take_back(const struct telling *telling, struct space *space, uint64_t start,
		     uint64_t end)
{
	struct range *range;
	int error = 0;

	while (!error && (range = find_range(space, start, end))) {
		error = tell_anonymous(telling, range);
		remove_range(telling->spaces, space, range);
	}
	return error;
}

static bool find_function(const struct telling *telling, struct jit_code *code, uint64_t address,
			  struct jit_function *function)
{
	return telling->teller->is_anonymous(telling->teller->context, address) &&
	       jit_code_find(code, telling->pid, address, telling->time, function);
}

static int tell_address(const struct telling *telling, struct jit_code *code, struct space *space,
			uint64_t address)
{
	const struct range *range = find_range(space, address, address + 1);
	struct jit_function function;
	int error;

	if (!find_function(telling, code, address, &function))
		return range ? take_back(telling, space, address, address + 1) : 0;
	if (range && range->start == function.start && range->end == function.end &&
	    range->place == function.place)
		return 0;
	error = take_back(telling, space, function.start, function.end);
	/* What can't be remembered can't be taken back. */
	if (error || !add_range(telling->spaces, space,
				&(struct range){ function.start, function.end, function.place }))
		return error;
	return tell_function(telling, &function);
}

/* Readers look a caller up at its return address, or at the call before that. */
static int tell_caller(const struct telling *telling, struct jit_code *code, struct space *space,
		       uint64_t address)
{
	int error = tell_address(telling, code, space, address - 1);

	return error ? error : tell_address(telling, code, space, address);
}

int jit_spaces_sample(struct jit_spaces *spaces, struct jit_code *code, const struct sample *sample,
		      const struct jit_spaces_teller *teller)
{
	const struct telling telling = { spaces, teller, sample->time, sample->pid };
	const uint64_t *user = sample->callchain + sample->kernel_depth;
	struct space *space = *find_space(spaces, sample->pid);
	int error = 0;

	if (!space && !jit_code_has(code, sample->pid))
		return 0;
	space = need_space(spaces, sample->pid);
	if (!space)
		return 0;
	if (sample->cpl)
		error = tell_address(&telling, code, space, sample->rip);
	for (uint16_t i = 0; i < sample->user_depth && !error; i++)
		error = tell_caller(&telling, code, space, user[i]);
	return error;
}

/* --- what others told --------------------------------------------------------- */

/* The file says that RANGE is in SPACE (NULL: it could not be made); where that can't be
 * remembered, that is taken back. */
static int remember(const struct telling *telling, struct space *space, const struct range *range)
{
	if (range->start >= range->end || (space && add_range(telling->spaces, space, range)))
		return 0;
	return tell_anonymous(telling, range);
}

/* A child has what its parent had. */
struct inheritance {
	const struct telling *telling;
	struct space *child;
	int error;
};

static void copy_range(const void *node, VISIT visit, void *context)
{
	struct inheritance *inheritance = context;

	if (!inheritance->error && (visit == postorder || visit == leaf))
		inheritance->error = remember(inheritance->telling, inheritance->child,
					      *(const struct range *const *)node);
}

static int fork_space(const struct telling *telling, uint32_t parent_pid)
{
	struct inheritance inheritance = { .telling = telling };
	struct space *parent;

	if (parent_pid == telling->pid)
		return 0;
	remove_space(telling->spaces, telling->pid);
	parent = *find_space(telling->spaces, parent_pid);
	if (!parent || !parent->ranges)
		return 0;
	inheritance.child = need_space(telling->spaces, telling->pid);
	twalk_r(parent->ranges, copy_range, &inheritance);
	return inheritance.error;
}

/* What is left of RANGE from START to END. */
static int keep(const struct telling *telling, struct space *space, const struct range *range,
		uint64_t start, uint64_t end)
{
	return remember(telling, space,
			&(struct range){ start, end, range->place + (start - range->start) });
}

/* Something else is at [START, END). */
static int mapped(const struct telling *telling, uint64_t start, uint64_t end)
{
	struct space *space = *find_space(telling->spaces, telling->pid);
	struct range *range, copy;
	int error = 0;

	while (!error && space && (range = find_range(space, start, end))) {
		copy = *range;
		remove_range(telling->spaces, space, range);
		error = keep(telling, space, &copy, copy.start, start);
		if (!error)
			error = keep(telling, space, &copy, end, copy.end);
	}
	return error;
}

int jit_spaces_told(struct jit_spaces *spaces, const struct sideband *record,
		    const struct jit_spaces_teller *teller)
{
	const struct telling telling = { spaces, teller, record->time, record->pid };
	const struct sideband_mmap *mmap = (const void *)record;
	const struct sideband_munmap *munmap = (const void *)record;
	const struct sideband_fork *fork = (const void *)record;

	if (record->type == SIDEBAND_MMAP)
		return mapped(&telling, mmap->start, mmap->start + mmap->length);
	if (record->type == SIDEBAND_MUNMAP)
		return mapped(&telling, munmap->start, munmap->start + munmap->length);
	if (record->type == SIDEBAND_FORK)
		return fork_space(&telling, fork->parent_pid);
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		remove_space(spaces, record->pid);
	return 0;
}
