/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/sideband_record.h"

#include "shared/sample_record.h"

#define SIDEBAND_ALL_FLAGS                                                                         \
	(SIDEBAND_COMM_EXEC | SIDEBAND_CR3_PAIR | SIDEBAND_MODULE_GENERATED | SIDEBAND_JIT_BEGIN | \
	 SIDEBAND_JIT_INCOMPLETE | SIDEBAND_JIT_END)

/* Bytes of the fixed part of each type; 0: no such type. */
static const size_t fixed_sizes[] = {
	[SIDEBAND_FORK] = sizeof(struct sideband_fork),
	[SIDEBAND_COMM] = sizeof(struct sideband_comm),
	[SIDEBAND_EXIT] = sizeof(struct sideband),
	[SIDEBAND_MMAP] = sizeof(struct sideband_mmap),
	[SIDEBAND_MUNMAP] = sizeof(struct sideband_munmap),
	[SIDEBAND_MODULE_LOAD] = sizeof(struct sideband_module),
	[SIDEBAND_MODULE_UNLOAD] = sizeof(struct sideband_munmap),
	[SIDEBAND_LOST] = sizeof(struct sideband_lost),
	[SIDEBAND_ROUND] = sizeof(struct sideband),
	[SIDEBAND_ADDRESS_SPACE] = sizeof(struct sideband),
	[SIDEBAND_JIT_MAP] = sizeof(struct sideband_jit_map),
	[SIDEBAND_JIT_CODE] = sizeof(struct sideband_jit_code),
	[SIDEBAND_CGROUP] = sizeof(struct sideband_cgroup),
};

static bool is_string(const char *string, size_t size)
{
	return memchr(string, '\0', size);
}

/* The end must be below 2^64, so no range contains the last byte of the address space. */
static bool is_range(uint64_t start, uint64_t length)
{
	return length && start + length > start;
}

static bool check_comm(const struct sideband *head)
{
	const struct sideband_comm *comm = (const void *)head;

	return is_string(comm->comm, sizeof(comm->comm));
}

static bool check_mmap(const struct sideband *head)
{
	const struct sideband_mmap *mmap = (const void *)head;

	return is_range(mmap->start, mmap->length) &&
	       mmap->build_id_size <= SIDEBAND_BUILD_ID_MAX &&
	       is_string(mmap->name, head->size - sizeof(*mmap));
}

static bool check_cgroup(const struct sideband *head)
{
	const struct sideband_cgroup *cgroup = (const void *)head;

	return !(cgroup->id >> 63) && is_string(cgroup->path, head->size - sizeof(*cgroup)) &&
	       *cgroup->path == '/';
}

static bool check_munmap(const struct sideband *head)
{
	const struct sideband_munmap *munmap = (const void *)head;

	return is_range(munmap->start, munmap->length);
}

static bool check_module(const struct sideband *head)
{
	const struct sideband_module *module = (const void *)head;

	return is_range(module->start, module->length) &&
	       module->build_id_size <= SIDEBAND_BUILD_ID_MAX &&
	       is_string(module->name, head->size - sizeof(*module));
}

static bool check_jit_code(const struct sideband *head)
{
	const struct sideband_jit_code *code = (const void *)head;

	return is_range(code->start, code->length) &&
	       is_string(code->name, head->size - sizeof(*code)) && *code->name;
}

static bool check_lost(const struct sideband *head)
{
	const struct sideband_lost *lost = (const void *)head;

	return lost->until >= head->time;
}

/* Larger ids are reserved for unknown tasks. */
static bool is_task(uint32_t pid, uint32_t tid)
{
	return pid < SAMPLE_TASK_LIMIT && tid < SAMPLE_TASK_LIMIT;
}

static bool check_fork(const struct sideband *head)
{
	const struct sideband_fork *fork = (const void *)head;

	return is_task(fork->parent_pid, fork->parent_tid);
}

static bool check_content(const struct sideband *head)
{
	switch (head->type) {
	case SIDEBAND_FORK:
		return check_fork(head);
	case SIDEBAND_COMM:
		return check_comm(head);
	case SIDEBAND_MMAP:
		return check_mmap(head);
	case SIDEBAND_CGROUP:
		return check_cgroup(head);
	case SIDEBAND_LOST:
		return check_lost(head);
	case SIDEBAND_MUNMAP:
	case SIDEBAND_MODULE_UNLOAD:
		return check_munmap(head);
	case SIDEBAND_MODULE_LOAD:
		return check_module(head);
	case SIDEBAND_JIT_CODE:
		return check_jit_code(head);
	default:
		return true;
	}
}

const struct sideband *sideband_check(struct span span)
{
	const struct sideband *head = (const void *)span.data;

	if (span.size < sizeof(*head) || (uintptr_t)span.data % 8)
		return NULL;
	if (!head->type || head->type >= sizeof(fixed_sizes) / sizeof(fixed_sizes[0]) ||
	    head->flags & ~SIDEBAND_ALL_FLAGS)
		return NULL;
	if (head->size % 8 || head->size > span.size || head->size > SIDEBAND_SIZE_MAX ||
	    head->size < fixed_sizes[head->type])
		return NULL;
	return is_task(head->pid, head->tid) && check_content(head) ? head : NULL;
}

bool sideband_is_memfd(const char *name)
{
	return !strncmp(name, "/memfd:", strlen("/memfd:"));
}

/* The names are from mm/memory.c and mm/shmem.c of Linux; "[anon:NAME]" comes from
 * PR_SET_VMA_ANON_NAME. */
bool sideband_is_anonymous(const char *name, bool has_build_id)
{
	static const char *const beginnings[] = { "//anon",         "[anon",  "/dev/zero", "/SYSV",
						  "/anon_hugepage", "[heap]", "[stack" };

	if (sideband_is_memfd(name))
		return !has_build_id;

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
		if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}
