/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/locks.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/hash.h"
#include "vmm/report/report_rows.h"

/* Of a stack. QUEUED: it would wait, but has no CPU. */
enum role { NOTHING, WAITS, QUEUED, MAY_HOLD };

/* A vCPU without a CPU. */
struct gap {
	uint64_t start, end;
	struct lock_row *row; /* NULL: it holds nothing */
	bool queued;
};

/* The gaps of one vCPU, by time. */
struct vcpu {
	uint32_t number;
	const struct gap *gaps;
	size_t count;
};

struct finder {
	struct locks *locks;
	const struct profile *profile;
	struct hash_table table;
	size_t capacity;
	uint8_t *roles; /* of each stack, enum role */
	size_t off_cpu; /* the event's number */
	bool has_exits; /* and the event kvm:exit */
	struct gap *gaps;
	struct vcpu *vcpus;
	size_t vcpu_count, vcpu_capacity;
};

static bool is_reason(const struct profile_frame *frame)
{
	return frame->symbol && *frame->symbol == '[' && !strcmp(frame->image, PROFILE_HOST_IMAGE);
}

static bool is_spin_function(const char *name)
{
	static const char *const names[] = {
		"native_queued_spin_lock_slowpath",
		"__pv_queued_spin_lock_slowpath",
		"queued_spin_lock_slowpath",
		"queued_read_lock_slowpath",
		"queued_write_lock_slowpath",
		"osq_lock",
		"mutex_spin_on_owner",
		"rwsem_spin_on_owner",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* A function of the host's kernel or its modules, with attach --host-stacks. */
static bool is_of_host(const struct profile_frame *frame)
{
	return !strncmp(frame->image, "[host", strlen("[host"));
}

/* The end of the guest kernel's frames in STACK from FIRST on. */
static size_t kernel_end(const struct profile_stack *stack, size_t first)
{
	while (first < stack->depth && stack->frames[first]->kernel &&
	       !is_of_host(stack->frames[first]))
		first++;
	return first;
}

static bool has_spin_function(const struct profile_stack *stack, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (stack->frames[i]->function && is_spin_function(stack->frames[i]->function))
			return true;
	return false;
}

/* A paravirtualized spinlock halts in a function or two that it calls. */
static bool spins(const struct profile_stack *stack, size_t first)
{
	enum { INNERMOST = 3 };
	size_t end = kernel_end(stack, first);

	return has_spin_function(stack, first, end < first + INNERMOST ? end : first + INNERMOST);
}

static bool is_idle(const struct profile_frame *frame)
{
	return frame->function &&
	       (strstr(frame->function, "idle") || strstr(frame->function, "halt"));
}

/*
 * A stack outside of the guest: whether the guest left it because it waits. Time in an exit is in
 * kvm:exit; what of it was without a CPU is in kvm:off-cpu, too, and must not count twice.
 */
static bool is_wait(const struct finder *finder, const struct profile_stack *stack)
{
	const char *reason = stack->frames[0]->symbol;

	if (stack->event == finder->off_cpu)
		return !finder->has_exits && strstr(reason, "halted");
	return strcasestr(reason, "pause") || strcasestr(reason, "hlt");
}

static enum role role_without_cpu(const struct profile_stack *stack)
{
	size_t end = kernel_end(stack, 1);

	if (has_spin_function(stack, 1, end))
		return QUEUED;
	return end == 1 || is_idle(stack->frames[1]) || strstr(stack->frames[0]->symbol, "halted")
		       ? NOTHING
		       : MAY_HOLD;
}

static enum role role_of(const struct finder *finder, const struct profile_stack *stack)
{
	size_t first = is_reason(stack->frames[0]) ? 1 : 0;

	if (first == stack->depth)
		return NOTHING;
	if (spins(stack, first) && (!first || is_wait(finder, stack)))
		return WAITS;
	return first && stack->event == finder->off_cpu ? role_without_cpu(stack) : NOTHING;
}

/* Entries from interrupted code are named like this (arch/x86/include/asm/idtentry.h). */
static size_t interrupted(const struct profile_stack *stack)
{
	static const char *const entries[] = { "asm_sysvec_", "asm_common_interrupt", "asm_exc_" };
	size_t end = kernel_end(stack, 1), first = 1;

	for (size_t i = 1; i + 1 < end; i++)
		for (size_t k = 0; k < sizeof(entries) / sizeof(entries[0]); k++)
			if (stack->frames[i]->function &&
			    !strncmp(stack->frames[i]->function, entries[k], strlen(entries[k])))
				first = i + 1;
	return first;
}

static bool same_code(const void *item, const void *key)
{
	const struct lock_row *a = item, *b = key;
	const struct profile_frame *const *left = a->stack->frames + a->first,
					  *const *right = b->stack->frames + b->first;
	size_t count = a->stack->depth - a->first;

	if (b->stack->depth - b->first != count || a->stack->comm != b->stack->comm)
		return false;
	for (size_t i = 0; i < count; i++)
		if (left[i]->function != right[i]->function || left[i]->image != right[i]->image)
			return false;
	return true;
}

/* Finds or creates the row of STACK; NULL without memory. */
static struct lock_row *row_of(struct finder *finder, const struct profile_stack *stack)
{
	struct locks *locks = finder->locks;
	struct lock_row wanted = { .stack = stack, .first = interrupted(stack) }, *row;
	uint64_t hash = hash_mix(0, (uintptr_t)stack->comm);

	for (size_t i = wanted.first; i < stack->depth; i++)
		hash = hash_mix(hash, (uintptr_t)stack->frames[i]->function);
	row = hash_table_find(&finder->table, hash, same_code, &wanted);
	if (row)
		return row;
	row = pool_alloc(&locks->pool, sizeof(*row));
	if (!row || hash_table_add(&finder->table, hash, row) ||
	    array_reserve(&locks->rows, &finder->capacity, locks->count + 1))
		return NULL;
	*row = wanted;
	return locks->rows[locks->count++] = row;
}

/* The vCPU NUMBER, whose gaps come one after the other, the first at GAP. NULL without memory. */
static struct vcpu *vcpu_of(struct finder *finder, uint32_t number, const struct gap *gap)
{
	size_t count = finder->vcpu_count;

	if (count && finder->vcpus[count - 1].number == number)
		return &finder->vcpus[count - 1];
	if (array_reserve(&finder->vcpus, &finder->vcpu_capacity, count + 1))
		return NULL;
	finder->vcpus[count] = (struct vcpu){ .number = number, .gaps = gap };
	return &finder->vcpus[finder->vcpu_count++];
}

static int add_gap(struct finder *finder, const struct profile_sample *sample, struct gap *gap)
{
	struct vcpu *vcpu = vcpu_of(finder, sample->vcpu, gap);
	uint64_t start = sample->time > sample->weight ? sample->time - sample->weight : 0;

	if (!vcpu)
		return -ENOMEM;
	if (vcpu->count && start < gap[-1].end)
		start = gap[-1].end;
	vcpu->count++;
	*gap = (struct gap){ .start = start,
			     .end = sample->time,
			     .queued = finder->roles[sample->stack] == QUEUED };
	if (finder->roles[sample->stack] != MAY_HOLD)
		return 0;
	gap->row = row_of(finder, profile_stack(finder->profile, sample->stack));
	if (!gap->row)
		return -ENOMEM;
	gap->row->times++;
	gap->row->off_cpu += sample->weight;
	return 0;
}

static int find_gaps(struct finder *finder)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(finder->profile);
	uint64_t count = profile_samples(finder->profile);
	struct gap *gap = finder->gaps;

	for (uint64_t i = 0; i < count; i++) {
		const struct profile_stack *stack =
			profile_stack(finder->profile, samples[i].stack);

		if (stack->event == finder->off_cpu && add_gap(finder, &samples[i], gap++))
			return -ENOMEM;
	}
	return 0;
}

/* The gap of VCPU that contains TIME, or NULL. */
static const struct gap *gap_at(const struct vcpu *vcpu, uint64_t time)
{
	size_t low = 0, high = vcpu->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (vcpu->gaps[middle].end < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low < vcpu->count && vcpu->gaps[low].start < time ? &vcpu->gaps[low] : NULL;
}

/* The vCPU NUMBER waited for WEIGHT ns around TIME. */
static void add_wait(struct finder *finder, uint32_t number, uint64_t time, uint64_t weight)
{
	struct locks *locks = finder->locks;
	struct lock_row *found = NULL;
	size_t holders = 0;
	bool queued = false;

	for (size_t i = 0; i < finder->vcpu_count; i++) {
		const struct vcpu *vcpu = &finder->vcpus[i];
		const struct gap *gap = vcpu->number == number ? NULL : gap_at(vcpu, time);

		if (!gap)
			continue;
		queued |= gap->queued;
		holders += gap->row != NULL;
		found = gap->row ? gap->row : found;
	}
	if (holders == 1) {
		found->waited += weight;
		locks->one += weight;
	} else {
		*(holders ? &locks->several : queued ? &locks->queued : &locks->none) += weight;
	}
}

/*
 * Time outside of the guest is one sample with a period for each sample point in it (bpf_source.c),
 * at whose time others may have held the lock.
 */
static void add_waits(struct finder *finder, const struct profile_sample *sample)
{
	enum { MOST = 1000 }; /* points of one sample: the file chooses its weight */
	const struct profile_stack *stack = profile_stack(finder->profile, sample->stack);
	uint64_t frequency = profile_event(finder->profile, stack->event)->frequency,
		 points = frequency ? sample->weight / (NS_PER_S / frequency) : 1, part;

	points = !points ? 1 : points < MOST ? points : MOST;
	part = sample->weight / points;
	for (uint64_t i = 0; i < points && i * part < sample->time; i++)
		add_wait(finder, sample->vcpu, sample->time - i * part, part);
}

static void find_waits(struct finder *finder)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(finder->profile);
	uint64_t count = profile_samples(finder->profile);

	for (uint64_t i = 0; i < count; i++)
		if (finder->roles[samples[i].stack] == WAITS)
			add_waits(finder, &samples[i]);
}

static int by_waited(const void *left, const void *right)
{
	const struct lock_row *a = *(struct lock_row *const *)left,
			      *b = *(struct lock_row *const *)right;

	return (a->waited < b->waited) - (a->waited > b->waited);
}

static void sort_rows(struct locks *locks)
{
	if (locks->count)
		qsort(locks->rows, locks->count, sizeof(*locks->rows), by_waited);
	while (locks->count && !locks->rows[locks->count - 1]->waited)
		locks->count--;
}

static bool find_event(const struct profile *profile, const char *name, size_t *number)
{
	for (*number = 0; *number < profile_event_count(profile); (*number)++)
		if (!strcmp(profile_event(profile, *number)->name, name))
			return true;
	return false;
}

static int find_roles(struct finder *finder)
{
	size_t count = profile_stack_count(finder->profile), exits, off_cpu_samples;

	finder->has_exits = find_event(finder->profile, "kvm:exit", &exits);
	if (!find_event(finder->profile, "kvm:off-cpu", &finder->off_cpu))
		return error_set(-ENODATA, "no time without a CPU was recorded: record it with "
					   "--event cpu-clock,kvm:exit,kvm:off-cpu");
	off_cpu_samples = profile_event(finder->profile, finder->off_cpu)->samples;
	finder->roles = calloc(count + 1, sizeof(*finder->roles));
	finder->gaps = calloc(off_cpu_samples + 1, sizeof(*finder->gaps));
	if (!finder->roles || !finder->gaps)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		finder->roles[i] = role_of(finder, profile_stack(finder->profile, i));
	return 0;
}

int locks_find(struct locks *locks, const struct profile *profile)
{
	struct finder finder = { .locks = locks, .profile = profile };
	int error;

	*locks = (struct locks){ 0 };
	error = find_roles(&finder);
	if (!error)
		error = find_gaps(&finder);
	if (!error) {
		locks->cpu_time = profile_event(profile, 0)->weight;
		find_waits(&finder);
		sort_rows(locks);
	} else if (error == -ENOMEM) {
		error_set(error, "no memory for the locks");
	}
	hash_table_free(&finder.table);
	free(finder.roles);
	free(finder.gaps);
	free(finder.vcpus);
	if (error)
		locks_free(locks);
	return error;
}

void locks_free(struct locks *locks)
{
	pool_free(&locks->pool);
	free(locks->rows);
	*locks = (struct locks){ 0 };
}

static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static double seconds(uint64_t ns)
{
	return (double)ns / NS_PER_S;
}

static void print_summary(const struct locks *locks, FILE *to)
{
	uint64_t waited = locks->one + locks->several + locks->queued + locks->none;

	fprintf(to,
		"# Waiting for locks of the guest's kernel: %.3f s, %.1f %% of the vCPUs' time\n"
		"#   %8.3f s while one vCPU without a CPU may have held the lock\n"
		"#   %8.3f s while several may have\n"
		"#   %8.3f s while one without a CPU waits, too, and is first in the queue\n"
		"#   %8.3f s otherwise\n",
		seconds(waited), percent(waited, locks->cpu_time), seconds(locks->one),
		seconds(locks->several), seconds(locks->queued), seconds(locks->none));
}

static void print_row(const struct lock_row *row, FILE *to)
{
	const struct profile_stack *stack = row->stack;
	char name[24];

	fprintf(to, "%10.3f s %10.3f s %8" PRIu64 "  %-15s  %s\n", seconds(row->waited),
		seconds(row->off_cpu), row->times, *stack->comm ? stack->comm : "-",
		report_frame_name(name, stack->frames[row->first]));
	for (size_t i = row->first + 1; i < stack->depth; i++)
		fprintf(to, "%53s%s\n", "", report_frame_name(name, stack->frames[i]));
}

static int end_of(FILE *to)
{
	if (fflush(to) || ferror(to))
		return error_set(errno == EPIPE ? -EPIPE : -EIO, "cannot write the report: %s",
				 strerror(errno));
	return 0;
}

static size_t shown(const struct locks *locks, size_t limit)
{
	return limit && limit < locks->count ? limit : locks->count;
}

int locks_print_text(const struct locks *locks, size_t limit, FILE *to)
{
	size_t count = shown(locks, limit);

	print_summary(locks, to);
	if (count)
		fputs("#\n#  Others waited  Without a CPU  Times  Command          Code\n", to);
	for (size_t i = 0; i < count; i++)
		print_row(locks->rows[i], to);
	if (count < locks->count)
		fprintf(to, "# %zu more rows\n", locks->count - count);
	return end_of(to);
}

static json_t *json_row(const struct lock_row *row)
{
	json_t *frames = json_array();
	char name[24];

	for (size_t i = row->first; i < row->stack->depth; i++)
		json_array_append_new(frames,
				      json_string(report_frame_name(name, row->stack->frames[i])));
	return json_pack("{s:I, s:I, s:I, s:s, s:o}", "waited_ns", (json_int_t)row->waited,
			 "off_cpu_ns", (json_int_t)row->off_cpu, "times", (json_int_t)row->times,
			 "comm", row->stack->comm, "frames", frames);
}

int locks_print_json(const struct locks *locks, size_t limit, FILE *to)
{
	size_t count = shown(locks, limit);
	json_t *rows = json_array(), *all;
	int error;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, json_row(locks->rows[i]));
	all = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "cpu_ns", (json_int_t)locks->cpu_time,
			"waited_one_ns", (json_int_t)locks->one, "waited_several_ns",
			(json_int_t)locks->several, "waited_queued_ns", (json_int_t)locks->queued,
			"waited_none_ns", (json_int_t)locks->none, "rows", rows);
	error = !all || json_dumpf(all, to, JSON_INDENT(2))
			? error_set(-ENOMEM, "no memory for the locks")
			: 0;
	json_decref(all);
	fputc('\n', to);
	return error ? error : end_of(to);
}
