/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/bpf_slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/bpf_skeletons.h"

/* Minimum sizes of memslots if there are too many for all. */
#define SIZE_FIRST (64ull << 10)
#define SIZE_LAST  (1ull << 40)

struct slot_list {
	struct vmm_slot *slots;
	int count;
	uint64_t generation;    /* common generation of all slots; BPF_NO_GENERATION: they changed
				   meanwhile */
	uint64_t vm_generation; /* of the VM reported last */
};

static void add_slot(void *context, const struct bpf_found *found)
{
	struct slot_list *list = context;

	if (found->type == BPF_FOUND_VM)
		list->vm_generation = found->generation;
	if (found->type == BPF_FOUND_SLOT && !list->count)
		list->generation = list->vm_generation;
	if (found->type == BPF_FOUND_SLOT && found->generation != list->generation)
		list->generation = BPF_NO_GENERATION;
	if (found->type == BPF_FOUND_SLOT && found->size && list->count < VMM_SLOTS_MAX)
		list->slots[list->count++] =
			(struct vmm_slot){ found->gpa, found->size, found->hva };
}

static int larger_first(const void *left, const void *right)
{
	const struct vmm_slot *one = left, *other = right;

	return one->size < other->size ? 1 : one->size > other->size ? -1 : 0;
}

static int collect(int pid_fd, int vm_fd, struct slot_list *list)
{
	uint64_t size_min = 0;
	int error;

	for (;;) {
		list->count = 0;
		list->generation = BPF_NO_GENERATION;
		error = bpf_programs_iterate(pid_fd, vm_fd, size_min, add_slot, list);
		if ((error != -E2BIG && list->count < VMM_SLOTS_MAX) || size_min >= SIZE_LAST)
			return error;
		size_min = size_min ? size_min * 4 : SIZE_FIRST;
	}
}

/* The program searches a few: stacks and page tables are in the large ones. */
static void choose(struct bpf_slots *largest, const struct slot_list *list)
{
	*largest = (struct bpf_slots){ .generation_of_kvm = list->generation };
	for (int i = 0; i < list->count && i < BPF_SLOTS_MAX; i++) {
		largest->slot[i].gpa = list->slots[i].gpa;
		largest->slot[i].size = list->slots[i].size;
		largest->slot[i].hva = list->slots[i].hva;
		largest->count++;
	}
}

int bpf_slots_find(int pid_fd, int vm_fd, struct vmm_slot *slots, struct bpf_slots *largest)
{
	struct slot_list list = { .slots = slots };
	int error = collect(pid_fd, vm_fd, &list);

	if (error)
		return error;
	if (!list.count)
		return error_set(-ENOTSUP, "BPF finds no memslots in this kernel");
	qsort(slots, (size_t)list.count, sizeof(slots[0]), larger_first);
	choose(largest, &list);
	return list.count;
}

void bpf_slots_publish(struct bpf_slots *shared, const struct bpf_slots *slots)
{
	__u32 generation = shared->generation;

	__atomic_store_n(&shared->generation, generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	shared->count = slots->count;
	shared->generation_of_kvm = slots->generation_of_kvm;
	memcpy(shared->slot, slots->slot, sizeof(shared->slot));
	__atomic_store_n(&shared->generation, generation + 2, __ATOMIC_RELEASE);
}
