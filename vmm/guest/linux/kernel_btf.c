/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/sample_record.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/kernel_memory.h"
#include "vmm/guest/linux/user_image.h"

#define FIRST_TASK "swapper" /* init/init_task.c, INIT_TASK_COMM; "/0" is appended later */

/* Checks LAYOUT with the first task, whose values are the same in every kernel. */
static bool matches(const struct guest_task_layout *layout, const struct guest_kernel *kernel,
		    const struct guest_view *view)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	char comm[SAMPLE_COMM_SIZE];
	struct symbol task;
	uint64_t mm, stack, first;
	uint32_t pid, tgid;

	return symbols_find_name(kernel->symbols, "init_task", &task) &&
	       kernel_memory_read(&memory, task.start + layout->pid, &pid, sizeof(pid)) && !pid &&
	       kernel_memory_read(&memory, task.start + layout->tgid, &tgid, sizeof(tgid)) &&
	       !tgid && kernel_memory_read_u64(&memory, task.start + layout->mm, &mm) && !mm &&
	       kernel_memory_read_u64(&memory, task.start + layout->stack, &stack) &&
	       guest_task_first_stack(kernel->symbols, &first) && stack == first &&
	       kernel_memory_read(&memory, task.start + layout->comm, comm, sizeof(comm)) &&
	       !strncmp(comm, FIRST_TASK, strlen(FIRST_TASK));
}

static void read_module_layout(struct guest_kernel *kernel, const struct btf *btf)
{
	struct symbol head;

	if (symbols_find_name(kernel->symbols, "modules", &head) &&
	    !module_layout_read(&kernel->module_layout, btf))
		kernel->module_list = head.start;
}

void guest_kernel_read_layouts(struct guest_kernel *kernel, const struct btf *btf)
{
	read_module_layout(kernel, btf);
	bpf_program_layout_read(&kernel->programs, kernel->symbols, btf);
	if (guest_task_layout_read(&kernel->tasks, kernel->symbols, kernel->per_cpu, btf))
		log_debug("the guest kernel's BTF does not describe its tasks");
	if (!kernel->tasks.cgroups.known ||
	    (!kernel->cgroups && guest_cgroups_create(&kernel->cgroups))) {
		log_debug("the guest kernel's BTF does not describe the cgroups of its tasks");
		kernel->tasks.cgroups.known = false;
	}
	if (guest_vma_layout_read(&kernel->vmas, kernel->symbols, btf) ||
	    (!kernel->images && user_images_create(&kernel->images))) {
		log_debug("the guest kernel's BTF does not describe user-space mappings");
		kernel->vmas.known = false;
	}
	perf_map_layout_read(&kernel->perf_maps, btf);
}

static int apply(struct guest_kernel *kernel, const struct guest_view *view, const struct btf *btf)
{
	struct guest_task_layout tasks;

	if (guest_task_layout_read(&tasks, kernel->symbols, kernel->per_cpu, btf))
		return error_set(-ENOENT, "it does not describe tasks");
	if (!matches(&tasks, kernel, view))
		return error_set(-EILSEQ, "it is not of the kernel that the guest runs");
	guest_kernel_read_layouts(kernel, btf);
	return 0;
}

int guest_kernel_use_btf(struct guest_kernel *kernel, const struct guest_view *view,
			 struct span data)
{
	struct btf btf;
	int error;

	if (kernel->tasks.known)
		return 0;
	if (guest_paging_is_32bit(&kernel->paging))
		return error_set(-ENOTSUP, "structures of 32-bit kernels are not read");
	error = btf_open(&btf, data);
	if (error)
		return error_set(error, "it is not BTF");
	error = apply(kernel, view, &btf);
	btf_close(&btf);
	return error;
}
