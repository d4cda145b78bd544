/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_user.h"

#include <time.h>

#include "shared/clock_ns.h"

/* ns. The rings hold some hundred times as much. */
#define TABLES_TIME  (10 * NS_PER_MS)
#define SYMBOLS_TIME (10 * NS_PER_MS)
#define LAST_TIME    NS_PER_S

const struct guest_kernel *collector_user_kernel(const struct collector_kernel *kernel)
{
	return kernel->found_count ? kernel->found[kernel->found_count - 1] : NULL;
}

const struct sample *collector_user_complete(const struct collector_kernel *kernel,
					     const struct sample *sample, struct sample *room)
{
	if (!sample->deferred)
		return sample;
	deferred_lookup(kernel->lost ? NULL : collector_user_kernel(kernel), kernel->options->view,
			sample, room);
	return room;
}

void collector_user_settle(const struct collector_kernel *kernel)
{
	const struct guest_kernel *running = collector_user_kernel(kernel);
	struct kernel_memory memory = { .view = kernel->options->view };

	if (!running)
		return;
	if (running->images)
		user_images_load(running->images, running, kernel->options->view);
	memory.paging = &running->paging;
	if (running->cgroups)
		guest_cgroups_load(running->cgroups, &memory, &running->tasks.cgroups);
}

void collector_user_make_tables(const struct collector_kernel *kernel, struct user_tables *tables,
				uint64_t now)
{
	const struct guest_kernel *running = collector_user_kernel(kernel);

	if (!running || !running->images || kernel->lost)
		return;
	while (user_tables_turn(tables, running->images, running, kernel->options->view, now) &&
	       clock_ns(CLOCK_MONOTONIC) - now < TABLES_TIME)
		;
}

/* Memory of a kernel that has ended may be in use by the next. */
static void find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
			 uint64_t now, uint64_t limit)
{
	const struct guest_kernel *running = collector_user_kernel(kernel);

	if (!symbols || !running || !running->images)
		return;
	while (!kernel->lost && !kernel->doubts &&
	       user_symbols_turn(symbols, running->images, running, kernel->options->view, now)) {
		collector_kernel_check_runs(kernel);
		user_symbols_take(symbols, !kernel->lost && !kernel->doubts, now);
		if (clock_ns(CLOCK_MONOTONIC) - now >= limit)
			return;
	}
}

void collector_user_find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
				 uint64_t now)
{
	find_symbols(kernel, symbols, now, SYMBOLS_TIME);
}

void collector_user_last_symbols(struct collector_kernel *kernel, struct user_symbols *symbols)
{
	if (symbols)
		user_symbols_hurry(symbols);
	find_symbols(kernel, symbols, clock_ns(CLOCK_MONOTONIC), LAST_TIME);
}
