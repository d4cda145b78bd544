/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the guest's kernel: by sampled registers, or by a search of guest memory. */
#include "vmm/attach/attach_state.h"

#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/memory_layout.h"
#include "vmm/guest/linux/guest_kernel.h"

/* Minimum time between two searches of all guest memory. After a search without a result, a VM that
 * has used less CPU time than SEARCH_RUN since then cannot have booted a kernel. */
#define SEARCH_INTERVAL NS_PER_S
#define SEARCH_RUN      (50 * NS_PER_MS)

/* What samples have shown of the kernel that runs. */
struct sampled_kernel {
	struct guest_registers registers;
	uint64_t rip;       /* of the last sample */
	uint64_t image_rip; /* in a kernel to be found; 0: unknown, or there is none yet */
	bool has_registers, stalled, known;
};

static struct sampled_kernel read_sampled(struct attach *attach)
{
	struct sampled_kernel sampled;

	pthread_mutex_lock(&attach->kernel_lock);
	sampled = (struct sampled_kernel){
		.registers = attach->latest,
		.rip = attach->latest_rip,
		.image_rip = attach->image_rip,
		.has_registers = attach->has_latest,
		.stalled = attach->kernel_stalled,
		.known = attach->kernel,
	};
	pthread_mutex_unlock(&attach->kernel_lock);
	return sampled;
}

/* With several VMs in one process, a mapping cannot be attributed to one of them. */
static bool may_guess(struct attach *attach)
{
	return attach->layout_guessed && attach->process->vms < 2 &&
	       !vmm_memory_is_known(&attach->memory);
}

/*
 * The guest may still be booting, or may not run Linux: the search is repeated at long intervals.
 */
static void search(struct attach *attach, uint64_t rip)
{
	uint64_t begun = attach_now(), processed = clock_ns(CLOCK_THREAD_CPUTIME_ID), run, lasted;

	if (begun < attach->next_search || !cpu_budget_allows(&attach->searches, begun))
		return;
	run = vmm_process_cpu_time(attach->process);
	if (attach->next_search && !attach->has_tables && run - attach->search_run < SEARCH_RUN)
		return;
	attach->search_run = run;
	if (may_guess(attach))
		memory_layout_guess(&attach->memory, attach->process);
	attach->has_tables =
		vmm_memory_is_known(&attach->memory) &&
		!kernel_tables_find(&attach->memory, attach->skip, rip, &attach->tables);
	/* The next search skips this candidate; after the last one it starts over. */
	attach->skip = attach->has_tables ? attach->skip + 1 : 0;
	if (!attach->has_tables)
		atomic_store(&attach->searched, true);
	lasted = attach_now() - begun;
	processed = clock_ns(CLOCK_THREAD_CPUTIME_ID) - processed;
	log_debug("searched guest memory for a kernel's page tables for %llu ms: %s",
		  (unsigned long long)(processed / NS_PER_MS),
		  attach->has_tables ? "found" : "there are none");
	cpu_budget_charge(&attach->searches, begun + lasted, cpu_budget_cost(lasted, processed));
	attach->next_search = begun + lasted + SEARCH_INTERVAL;
}

/* The page tables of a stalled kernel are still in memory: only other tables are the running
 * kernel's. */
static bool maps_old_kernel(struct attach *attach, const struct guest_registers *registers)
{
	bool maps;

	pthread_mutex_lock(&attach->kernel_lock);
	maps = attach->kernel && attach->kernel_stalled &&
	       guest_kernel_is_running(attach->kernel, &attach->memory.view, registers);
	pthread_mutex_unlock(&attach->kernel_lock);
	return maps;
}

/* Uses the page tables of sampled registers, or searches for them if the backend has no registers.
 */
bool attach_registers(struct attach *attach, struct guest_registers *registers)
{
	const struct sampled_kernel sampled = read_sampled(attach);

	THREAD_CHECK(&attach->searcher);
	/* Registers are useless without the memory layout, which can be guessed only once a kernel
	 * has started. After a reset, firmware has left only the old kernel's tables in memory. */
	if ((!attach->has_kernel || (sampled.stalled && sampled.image_rip)) &&
	    (!sampled.has_registers || may_guess(attach)))
		search(attach, sampled.image_rip);
	*registers = sampled.registers;
	if (sampled.has_registers)
		return true;
	if (!attach->has_tables)
		return false;
	kernel_tables_registers(&attach->tables, registers);
	registers->rip = sampled.rip;
	return !maps_old_kernel(attach, registers);
}

static void set_kernel(struct attach *attach, const struct guest_kernel *kernel, bool lost)
{
	if (kernel && attach->layout_guessed)
		memory_layout_correct(&attach->memory, kernel);
	if (kernel) {
		attach->tables = kernel->paging; /* those of a process disappear with it */
		attach->has_kernel = true;
		attach->skip = 0;
		cpu_budget_refill(&attach->searches); /* the next search follows a reset */
	}
	pthread_mutex_lock(&attach->kernel_lock);
	if (!kernel || !attach->kernel || !guest_kernels_equal(kernel, attach->kernel)) {
		attach->cpus_current = false;
		attach->pulse = (struct kernel_pulse){ 0 };
		memset(attach->clocks, 0, attach->ring_count * sizeof(attach->clocks[0]));
		attach->known_since = clock_ns(CLOCK_MONOTONIC_RAW);
	}
	memset(attach->checked, 0,
	       sizeof(attach->checked)); /* a later kernel may be at the same address */
	attach->kernel = kernel;
	attach->lost_kernel = lost;
	attach->kernel_stalled = false;
	if (kernel)
		attach->image_rip = 0;
	pthread_mutex_unlock(&attach->kernel_lock);
}

void attach_set_kernel(struct attach *attach, const struct guest_kernel *kernel)
{
	set_kernel(attach, kernel, false);
}

/* Users hold the lock. */
void attach_wait_for_users(struct attach *attach)
{
	pthread_mutex_lock(&attach->kernel_lock);
	pthread_mutex_unlock(&attach->kernel_lock);
}

bool attach_awaits_kernel(struct attach *attach)
{
	return attach_needs_callchains(attach) && !read_sampled(attach).known &&
	       !atomic_load(&attach->searched);
}

void attach_drop_kernel(struct attach *attach)
{
	attach->has_kernel = attach->has_tables = false;
	attach->skip = 0; /* the current candidate showed the new kernel */
	attach->next_search = 0;
	set_kernel(attach, NULL, true);
}
