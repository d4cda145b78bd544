/* SPDX-License-Identifier: Apache-2.0 */
/* Where the guest's kernel is, as far as samples or a search of its memory tell. */
#include "vmm/attach/attach_state.h"

#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/memory_layout.h"
#include "vmm/guest/linux/kernel_identity.h"

/*
 * Between two searches of all of the guest's memory. Where there was none, a VM that used less CPU
 * time than this since has started none.
 */
#define SEARCH_INTERVAL NS_PER_S
#define SEARCH_RUN      (50 * NS_PER_MS)

/* An address at which a kernel ran that is to be found. 0: not known, or there is none yet. */
static uint64_t wanted_rip(struct attach *attach)
{
	uint64_t rip;

	pthread_mutex_lock(&attach->kernel_lock);
	rip = attach->image_rip;
	pthread_mutex_unlock(&attach->kernel_lock);
	return rip;
}

/* Where the guest's memory lies: of several VMs nobody would know whose it is. */
static bool may_guess(struct attach *attach)
{
	return attach->layout_guessed && attach->process->vms < 2 &&
	       !vmm_memory_is_known(&attach->memory);
}

/* The guest may only be starting, or run no Linux: it is looked for again and again, but seldom. */
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
	/* The next time it is the candidate behind this one; behind the last, the first again. */
	attach->skip = attach->has_tables ? attach->skip + 1 : 0;
	if (!attach->has_tables)
		atomic_store(&attach->searched, true);
	lasted = attach_now() - begun;
	processed = clock_ns(CLOCK_THREAD_CPUTIME_ID) - processed;
	log_debug("the guest's memory was searched for page tables of a kernel, for %llu ms: %s",
		  (unsigned long long)(processed / NS_PER_MS),
		  attach->has_tables ? "found" : "there are none");
	cpu_budget_charge(&attach->searches, begun + lasted, cpu_budget_cost(lasted, processed));
	attach->next_search = begun + lasted + SEARCH_INTERVAL;
}

static bool latest_registers(struct attach *attach, struct guest_registers *registers)
{
	bool has;

	pthread_mutex_lock(&attach->kernel_lock);
	has = attach->has_latest;
	*registers = attach->latest;
	pthread_mutex_unlock(&attach->kernel_lock);
	return has;
}

/* The tables of the kernel that stands still are there still: others are those of the one that
 * runs. */
static bool maps_old_kernel(struct attach *attach, const struct guest_registers *registers)
{
	bool maps;

	pthread_mutex_lock(&attach->kernel_lock);
	maps = attach->kernel && attach->kernel_stalled &&
	       guest_kernel_is_running(attach->kernel, &attach->memory.view, registers);
	pthread_mutex_unlock(&attach->kernel_lock);
	return maps;
}

static void read_pulse(struct attach *attach, bool *kernel_stalled, uint64_t *rip)
{
	pthread_mutex_lock(&attach->kernel_lock);
	*kernel_stalled = attach->kernel_stalled;
	*rip = attach->latest_rip;
	pthread_mutex_unlock(&attach->kernel_lock);
}

/* A backend that knows the guest's registers knows its page tables; else they are searched. */
bool attach_registers(struct attach *attach, struct guest_registers *registers)
{
	bool has = latest_registers(attach, registers), kernel_stalled;
	uint64_t rip, wanted = wanted_rip(attach);

	read_pulse(attach, &kernel_stalled, &rip);
	/* Without memory they lead nowhere; where it lies can be seen only when the guest's kernel
	 * has started. Firmware, behind a reset, has only the old kernel's tables to be found. */
	if ((!attach->has_kernel || (kernel_stalled && wanted)) && (!has || may_guess(attach)))
		search(attach, wanted);
	if (has)
		return true;
	if (!attach->has_tables)
		return false;
	kernel_tables_registers(&attach->tables, registers);
	registers->rip = rip;
	return !maps_old_kernel(attach, registers);
}

static void set_kernel(struct attach *attach, const struct guest_kernel *kernel, bool lost)
{
	if (kernel && attach->layout_guessed)
		memory_layout_correct(&attach->memory, kernel);
	if (kernel) {
		attach->tables = kernel->paging; /* a process's go with it */
		attach->has_kernel = true;
		attach->skip = 0;
		cpu_budget_refill(&attach->searches); /* the next one is behind a reset */
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

/* Whoever uses it has the lock. */
void attach_wait_for_users(struct attach *attach)
{
	pthread_mutex_lock(&attach->kernel_lock);
	pthread_mutex_unlock(&attach->kernel_lock);
}

static bool has_known_kernel(struct attach *attach)
{
	bool knows;

	pthread_mutex_lock(&attach->kernel_lock);
	knows = attach->kernel;
	pthread_mutex_unlock(&attach->kernel_lock);
	return knows;
}

bool attach_awaits_kernel(struct attach *attach)
{
	return attach_needs_callchains(attach) && !has_known_kernel(attach) &&
	       !atomic_load(&attach->searched);
}

void attach_drop_kernel(struct attach *attach)
{
	attach->has_kernel = attach->has_tables = false;
	attach->skip = 0; /* the candidate that showed it is the one that is wanted */
	attach->next_search = 0;
	set_kernel(attach, NULL, true);
}
