/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_exits.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/exit_counter.h"
#include "vmm/cli/access_table.h"
#include "vmm/cli/exit_table.h"

struct run_exits {
	struct exit_counter *counter;     /* NULL: BPF does not work here */
	struct vcpu_exit_count *counts;   /* VCPU_EXIT_REASONS of each vCPU; NULL: not needed */
	char missing[ERROR_MESSAGE_SIZE]; /* why KVM's exits are not counted, or empty */
};

int run_exits_open(struct run_exits **result)
{
	struct run_exits *exits = calloc(1, sizeof(*exits));
	const char *why = NULL;

	if (!exits)
		return error_set(-ENOMEM, "no memory for counting exits");
	if (exit_counter_open(&exits->counter, getpid(), false))
		why = error_message();
	else
		why = exit_counter_missing(exits->counter);
	if (why)
		snprintf(exits->missing, sizeof(exits->missing), "%s", why);
	*result = exits;
	return 0;
}

int run_exits_join(struct run_exits *exits, struct machine *machine)
{
	struct vm *vm = machine_vm(machine);

	if (!exits->missing[0])
		return 0;
	exits->counts = calloc(vm->vcpu_count * (size_t)VCPU_EXIT_REASONS, sizeof(*exits->counts));
	if (!exits->counts)
		return error_set(-ENOMEM, "no memory for counting exits");
	for (unsigned int i = 0; i < vm->vcpu_count; i++)
		vm->vcpus[i]->exit_counts = exits->counts + (size_t)i * VCPU_EXIT_REASONS;
	return 0;
}

void run_exits_close(struct run_exits *exits)
{
	if (!exits)
		return;
	exit_counter_close(exits->counter);
	free(exits->counts);
	free(exits);
}

/* Exits that reach this process */

static const char *const reasons[VCPU_EXIT_REASONS] = {
	[KVM_EXIT_IO] = "io",
	[KVM_EXIT_MMIO] = "mmio",
	[KVM_EXIT_HLT] = "hlt",
	[KVM_EXIT_DEBUG] = "debug",
	[KVM_EXIT_SHUTDOWN] = "shutdown",
	[KVM_EXIT_FAIL_ENTRY] = "fail_entry",
	[KVM_EXIT_INTR] = "intr",
	[KVM_EXIT_IRQ_WINDOW_OPEN] = "irq_window_open",
	[KVM_EXIT_INTERNAL_ERROR] = "internal_error",
	[KVM_EXIT_SYSTEM_EVENT] = "system_event",
	[KVM_EXIT_X86_RDMSR] = "rdmsr",
	[KVM_EXIT_X86_WRMSR] = "wrmsr",
};

static struct vcpu_exit_count sum_of(const struct run_exits *exits, unsigned int vcpus,
				     unsigned int reason)
{
	struct vcpu_exit_count sum = { 0 };

	for (unsigned int i = 0; i < vcpus; i++) {
		const struct vcpu_exit_count *count =
			&exits->counts[i * (size_t)VCPU_EXIT_REASONS + reason];

		sum.count += count->count;
		sum.ns += count->ns;
		sum.ns_max = count->ns_max > sum.ns_max ? count->ns_max : sum.ns_max;
	}
	return sum;
}

static void print_own(const struct run_exits *exits, unsigned int vcpus, double seconds)
{
	char number[16], mean[16], longest[16];

	fprintf(stderr, "%-24s %11s %11s %8s %9s %9s\n", "exit to kvmscope", "exits", "exits/s",
		"time %", "mean", "max");
	for (unsigned int i = 0; i < VCPU_EXIT_REASONS; i++) {
		struct vcpu_exit_count sum = sum_of(exits, vcpus, i);

		if (!sum.count)
			continue;
		snprintf(number, sizeof(number), "reason %u", i);
		fprintf(stderr, "%-24s %11llu %11.1f %8.2f %9s %9s\n",
			reasons[i] ? reasons[i] : number, (unsigned long long)sum.count,
			(double)sum.count / seconds, (double)sum.ns / (seconds * 1e9 * vcpus) * 100,
			duration_text((double)sum.ns / (double)sum.count, mean),
			duration_text((double)sum.ns_max, longest));
	}
	fprintf(stderr, "\n");
	log_info("exits that KVM handles are not included: %s", exits->missing);
}

/* Exits by BPF */

bool run_exits_times(const struct run_exits *exits, struct vcpu_times_rows *rows,
		     enum vcpu_times_detail *detail)
{
	*detail = exit_counter_detail(exits->counter);
	return exits->counter && !exit_counter_times(exits->counter, rows);
}

/* The state of KVM's exits and the scheduler's at the end. */
static void print_counted(const struct run_exits *exits, unsigned int vcpus, double seconds)
{
	struct exit_table table = { .missing = exits->missing,
				    .detail = exit_counter_detail(exits->counter),
				    .seconds = seconds,
				    .wall = seconds * 1e9 * vcpus };
	struct vcpu_times_rows times;
	struct exit_rows rows;

	if (exit_counter_times(exits->counter, &times)) {
		log_warning("%s", error_message());
		return;
	}
	table.times = vcpu_times_sum(&times);
	vcpu_times_free(&times);
	if (exit_counter_read(exits->counter, &rows)) {
		log_warning("%s", error_message());
		return;
	}
	exit_rows_merge(&rows, false);
	exit_rows_sort(rows.rows, rows.count);
	table.rows = rows.rows;
	table.count = rows.count;
	exit_table_print(&table, stderr);
	free(rows.rows);
	if (rows.lost)
		log_warning("%llu exits were not counted: there are too many kinds of exits",
			    (unsigned long long)rows.lost);
}

void run_exits_print(const struct run_exits *exits, unsigned int vcpus, double seconds)
{
	if (exits->counter)
		print_counted(exits, vcpus, seconds);
	if (exits->counts)
		print_own(exits, vcpus, seconds);
}
