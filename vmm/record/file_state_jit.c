/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file says of functions generated at run time: a mapping of the function in the image
 * of its process (vmm/symbols/jit_image.h), or anonymous memory again where that no longer
 * holds.
 */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm/record/file_state_parts.h"
#include "vmm/symbols/jit_image.h"

#define BUCKETS 256u
/* Ranges of a file; a guest that fills them gets no symbols for further ones. */
#define RANGES_MAX 65536u
/* A range with its tree node, which tsearch(3) allocates: three pointers and malloc's overhead. */
#define RANGE_COST (sizeof(struct range) + 48)

/* The file says that a function of an image is here. */
struct range {
	struct jit_range at; /* the first member: ranges are in trees */
	uint64_t offset;     /* in the image's file, bytes */
};

struct space {
	struct space *next; /* of the bucket */
	uint32_t pid;
	void *ranges; /* tree, tsearch(3): no two at one address */
};

struct file_jit {
	struct guest_account *account;
	struct file_emit emit;
	struct space *buckets[BUCKETS];
	size_t ranges;
};

struct file_jit *file_jit_new(struct guest_account *account, const struct file_emit *emit)
{
	struct file_jit *jit = calloc(1, sizeof(*jit));

	if (!jit)
		return NULL;
	jit->account = account;
	jit->emit = *emit;
	return jit;
}

static struct space **find_space(struct file_jit *jit, uint32_t pid)
{
	struct space **at = &jit->buckets[pid % BUCKETS];

	while (*at && (*at)->pid != pid)
		at = &(*at)->next;
	return at;
}

static void remove_range(struct file_jit *jit, struct space *space, struct range *range)
{
	tdelete(range, &space->ranges, jit_range_compare);
	guest_account_free(jit->account, range, RANGE_COST);
	jit->ranges--;
}

static void remove_space(struct file_jit *jit, uint32_t pid)
{
	struct space **at = find_space(jit, pid), *space = *at;

	if (!space)
		return;
	while (space->ranges)
		remove_range(jit, space, *(struct range **)space->ranges);
	*at = space->next;
	guest_account_free(jit->account, space, sizeof(*space));
}

void file_jit_free(struct file_jit *jit)
{
	if (!jit)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while (jit->buckets[i])
			remove_space(jit, jit->buckets[i]->pid);
	free(jit);
}

static struct space *need_space(struct file_jit *jit, uint32_t pid)
{
	struct space **at = find_space(jit, pid);

	if (!*at) {
		*at = guest_account_new(jit->account, sizeof(**at));
		if (*at)
			(*at)->pid = pid;
	}
	return *at;
}

static bool add_range(struct file_jit *jit, struct space *space, const struct range *from)
{
	struct range *range =
		jit->ranges < RANGES_MAX ? guest_account_new(jit->account, RANGE_COST) : NULL;

	if (!range)
		return false;
	*range = *from;
	if (!tsearch(range, &space->ranges, jit_range_compare)) {
		guest_account_free(jit->account, range, RANGE_COST);
		return false;
	}
	jit->ranges++;
	return true;
}

/* --- records ---------------------------------------------------------------------- */

/* What is being written: for one process, at one time. */
struct writing {
	struct file_jit *jit;
	uint64_t time; /* ns */
	uint32_t pid;
};

static int write_mapping(const struct writing *writing, const struct sideband_mmap *what,
			 const char *name)
{
	uint64_t bytes[(sizeof(*what) + 64) / 8];
	struct sideband_mmap *record = (struct sideband_mmap *)bytes;

	*record = *what;
	record->head = sideband_head(SIDEBAND_MMAP, sideband_size(sizeof(*record), name),
				     writing->time, writing->pid);
	record->prot = PROT_READ | PROT_EXEC;
	record->map_flags = MAP_PRIVATE;
	memcpy(record->name, name, strlen(name) + 1);
	return writing->jit->emit.record(writing->jit->emit.context, &record->head);
}

static int write_function(const struct writing *writing, const struct jit_function *function)
{
	struct sideband_mmap mmap = { .start = function->range.start,
				      .length = function->range.end - function->range.start,
				      .offset = function->offset,
				      .build_id_size = SIDEBAND_BUILD_ID_MAX };
	char name[32];

	snprintf(name, sizeof(name), JIT_IMAGE_NAME "%u.so", writing->pid);
	memcpy(mmap.build_id, function->build_id, sizeof(mmap.build_id));
	return write_mapping(writing, &mmap, name);
}

static int write_anonymous(const struct writing *writing, const struct range *range)
{
	const struct sideband_mmap mmap = { .start = range->at.start,
					    .length = range->at.end - range->at.start,
					    .offset = range->at.start };

	return write_mapping(writing, &mmap, "//anon");
}

/* Writes that [START, END) is anonymous memory again. */
static int revert(const struct writing *writing, struct space *space, uint64_t start, uint64_t end)
{
	struct range *range;
	int error = 0;

	while (!error && (range = jit_range_find(&space->ranges, start, end))) {
		error = write_anonymous(writing, range);
		remove_range(writing->jit, space, range);
	}
	return error;
}

/* --- samples ---------------------------------------------------------------------- */

/* Is ADDRESS certainly in memory that belongs to no file? */
static bool is_anonymous(const struct resolver_mapping *decision, uint64_t address)
{
	const struct resolver_image *image = decision->image;

	return image && address >= decision->start && address < decision->end &&
	       sideband_is_anonymous(image->name, image->build_id_size);
}

static int write_address(const struct writing *writing, struct jit_code *code, struct space *space,
			 uint64_t address, const struct resolver_mapping *decision)
{
	const struct range *range = jit_range_find(&space->ranges, address, address + 1);
	struct jit_function function;
	int error;

	if (!is_anonymous(decision, address) ||
	    !jit_code_find(code, writing->pid, address, writing->time, &function))
		return range ? revert(writing, space, address, address + 1) : 0;
	if (range && range->at.start == function.range.start &&
	    range->at.end == function.range.end && range->offset == function.offset)
		return 0;
	error = revert(writing, space, function.range.start, function.range.end);
	/* What cannot be remembered could not be reverted later. */
	if (error ||
	    !add_range(writing->jit, space, &(struct range){ function.range, function.offset }))
		return error;
	return write_function(writing, &function);
}

/* Readers look a caller up at its return address, or at the call before that. */
static int write_caller(const struct writing *writing, struct jit_code *code, struct space *space,
			uint64_t address, const struct resolver_mapping *decision)
{
	int error = write_address(writing, code, space, address - 1, decision);

	return error ? error : write_address(writing, code, space, address, decision);
}

int file_jit_sample(struct file_jit *jit, struct jit_code *code,
		    const struct attributed_sample *attributed)
{
	const struct sample *sample = attributed->sample;
	const struct writing writing = { jit, sample->time, sample->pid };
	const uint64_t *user = sample->callchain + sample->kernel_depth;
	struct space *space = *find_space(jit, sample->pid);
	int error = 0;

	if (!space && !jit_code_has(code, sample->pid))
		return 0;
	space = need_space(jit, sample->pid);
	if (!space)
		return 0;
	if (sample->cpl)
		error = write_address(&writing, code, space, sample->rip, &attributed->mapping);
	for (uint16_t i = 0; i < sample->user_depth && !error; i++)
		error = write_caller(&writing, code, space, user[i], &attributed->user[i]);
	return error;
}

/* --- records of other writers ----------------------------------------------------- */

/* The file says that RANGE is in SPACE (NULL: no memory for it). What cannot be remembered is
 * reverted. */
static int remember(const struct writing *writing, struct space *space, const struct range *range)
{
	if (range->at.start >= range->at.end || (space && add_range(writing->jit, space, range)))
		return 0;
	return write_anonymous(writing, range);
}

/* Readers give a child what its parent has. */
struct inheritance {
	const struct writing *writing;
	struct space *child;
	int error;
};

static void copy_range(const void *node, VISIT visit, void *context)
{
	struct inheritance *inheritance = context;

	if (!inheritance->error && (visit == postorder || visit == leaf))
		inheritance->error = remember(inheritance->writing, inheritance->child,
					      *(const struct range *const *)node);
}

static int fork_space(const struct writing *writing, uint32_t parent_pid)
{
	struct inheritance inheritance = { .writing = writing };
	struct space *parent;

	if (parent_pid == writing->pid)
		return 0;
	remove_space(writing->jit, writing->pid);
	parent = *find_space(writing->jit, parent_pid);
	if (!parent || !parent->ranges)
		return 0;
	inheritance.child = need_space(writing->jit, writing->pid);
	twalk_r(parent->ranges, copy_range, &inheritance);
	return inheritance.error;
}

/* Something else is at [START, END): what a range has on either side of it stays. */
static int replace(const struct writing *writing, uint64_t start, uint64_t end)
{
	struct space *space = *find_space(writing->jit, writing->pid);
	struct range *range;
	int error = 0;

	while (!error && space && (range = jit_range_find(&space->ranges, start, end))) {
		const struct range before = { { range->at.start, start }, range->offset };
		const struct range after = { { end, range->at.end },
					     range->offset + (end - range->at.start) };

		remove_range(writing->jit, space, range);
		error = remember(writing, space, &before);
		if (!error)
			error = remember(writing, space, &after);
	}
	return error;
}

int file_jit_written(struct file_jit *jit, const struct sideband *record)
{
	const struct writing writing = { jit, record->time, record->pid };
	const struct sideband_mmap *mmap = (const void *)record;
	const struct sideband_munmap *munmap = (const void *)record;
	const struct sideband_fork *fork = (const void *)record;

	if (record->type == SIDEBAND_MMAP)
		return replace(&writing, mmap->start, mmap->start + mmap->length);
	if (record->type == SIDEBAND_MUNMAP)
		return replace(&writing, munmap->start, munmap->start + munmap->length);
	if (record->type == SIDEBAND_FORK)
		return fork_space(&writing, fork->parent_pid);
	if (record->type == SIDEBAND_COMM && record->flags & SIDEBAND_COMM_EXEC)
		remove_space(jit, record->pid);
	return 0;
}
