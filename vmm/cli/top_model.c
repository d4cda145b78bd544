/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/printable.h"

/* A report of our own process has fewer. */
#define VCPUS_MAX     1024
#define FUNCTIONS_MAX 1000

const char *const top_sort_names[TOP_SORTS + 1] = { "cpu", "vm", "process", "function", NULL };

static const char *member_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static double member_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static uint64_t member_count(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

/* Texts: copies that are safe to print, in one block of memory. */

static size_t texts_size(const json_t *report)
{
	const json_t *functions = json_object_get(report, "functions"), *row;
	size_t size = 0, i;

	json_array_foreach(functions, i, row) size +=
		strlen(member_text(row, "function")) + strlen(member_text(row, "image")) +
		strlen(member_text(row, "process")) + strlen(member_text(row, "callers")) + 4;
	return size + strlen(member_text(report, "missing")) + 1;
}

/* Lines stay lines. */
static void make_lines_printable(char *text)
{
	char *end;

	for (; (end = strchr(text, '\n')); text = end + 1) {
		*end = '\0';
		make_printable(text);
		memset(text + strlen(text), ' ', (size_t)(end - text) - strlen(text));
		*end = '\n';
	}
	make_printable(text);
}

/* Copies the member KEY of OBJECT to TO, and advances. */
static const char *copy_text(char **to, const json_t *object, const char *key)
{
	char *copy = *to;

	*to = stpcpy(copy, member_text(object, key)) + 1;
	make_lines_printable(copy);
	return copy;
}

/* A line end would break the table. */
static const char *copy_name(char **to, const json_t *object, const char *key)
{
	char *copy = *to;

	*to = stpcpy(copy, member_text(object, key)) + 1;
	make_printable(copy);
	return copy;
}

/* Parts of a report */

static void add_states(struct top_vm *vm, struct top_vcpu *vcpu, const json_t *row)
{
	char key[32];

	for (unsigned int i = 0; i < VCPU_STATES; i++) {
		snprintf(key, sizeof(key), "%s_ns", vcpu_state_name(i));
		if (!json_object_get(row, key))
			continue;
		vm->states |= 1u << i;
		vcpu->ns[i] = member_count(row, key);
		vm->total.ns[i] += vcpu->ns[i];
	}
}

static int read_vcpus(struct top_vm *vm, const json_t *report, double seconds)
{
	const json_t *rows = json_object_get(report, "vcpus"), *row;
	size_t i;

	if (json_array_size(rows) > VCPUS_MAX)
		return error_set(-EINVAL, "the report of process %d has too many vCPUs", vm->pid);
	vm->vcpus = calloc(json_array_size(rows) + 1, sizeof(*vm->vcpus));
	if (!vm->vcpus)
		return error_set(-ENOMEM, "no memory for the vCPUs of process %d", vm->pid);
	vm->total.exits = -1;
	json_array_foreach(rows, i, row)
	{
		struct top_vcpu *vcpu = &vm->vcpus[vm->vcpu_count++];

		vcpu->vcpu = (unsigned int)member_count(row, "vcpu");
		vcpu->exits = -1;
		add_states(vm, vcpu, row);
		if (!json_object_get(row, "exits") || seconds <= 0)
			continue;
		vcpu->exits = (double)member_count(row, "exits") / seconds;
		vm->total.exits = (vm->total.exits < 0 ? 0 : vm->total.exits) + vcpu->exits;
	}
	return 0;
}

static int read_functions(struct top_vm *vm, const json_t *report, char **texts)
{
	const json_t *rows = json_object_get(report, "functions"), *row;
	size_t i;

	if (json_array_size(rows) > FUNCTIONS_MAX)
		return error_set(-EINVAL, "the report of process %d has too many functions",
				 vm->pid);
	vm->functions = calloc(json_array_size(rows) + 1, sizeof(*vm->functions));
	if (!vm->functions)
		return error_set(-ENOMEM, "no memory for the functions of process %d", vm->pid);
	json_array_foreach(rows, i, row) vm->functions[vm->function_count++] =
		(struct top_function){
			.vm = vm,
			.function = copy_name(texts, row, "function"),
			.image = copy_name(texts, row, "image"),
			.process = copy_name(texts, row, "process"),
			.callers = copy_text(texts, row, "callers"),
			.percent = member_number(row, "cpu_percent"),
			.samples = member_count(row, "samples"),
			.kernel = json_is_true(json_object_get(row, "kernel")),
		};
	return 0;
}

static void read_exits(struct top_vm *vm, const json_t *report)
{
	const json_t *rows = json_object_get(report, "exits"), *row;
	uint64_t all = 0;
	size_t i;

	json_array_foreach(rows, i, row) all += member_count(row, "exits");
	if (!all)
		return;
	/* Names of the kernel's tracepoint: they are not the guest's. */
	row = json_array_get(rows, 0);
	vm->exit = member_text(row, "reason");
	vm->exit_percent = (double)member_count(row, "exits") / (double)all * 100;
}

static int read_report(struct top_vm *vm, json_t *report)
{
	char *texts = vm->texts = malloc(texts_size(report));
	int error;

	if (!texts)
		return error_set(-ENOMEM, "no memory for the report of process %d", vm->pid);
	vm->missing = copy_name(&texts, report, "missing");
	vm->samples = member_count(report, "samples");
	vm->lost = member_count(report, "lost_samples");
	error = read_vcpus(vm, report, member_number(report, "seconds"));
	if (error)
		return error;
	read_exits(vm, report);
	return read_functions(vm, report, &texts);
}

void top_vm_clear(struct top_vm *vm)
{
	free(vm->vcpus);
	free(vm->functions);
	free(vm->texts);
	json_decref(vm->report);
	*vm = (struct top_vm){ .pid = vm->pid,
			       .fd = vm->fd,
			       .name = vm->name,
			       .error = vm->error,
			       .missing = "",
			       .exit = "" };
}

int top_vm_update(struct top_vm *vm, json_t *report)
{
	int error;

	top_vm_clear(vm);
	if (!json_is_object(report))
		return error_set(-EINVAL, "the report of process %d is not an object", vm->pid);
	vm->report = json_incref(report);
	error = read_report(vm, report);
	if (error)
		top_vm_clear(vm);
	return error;
}

double top_vm_percent(const struct top_vm *vm, const struct top_vcpu *vcpu, enum vcpu_state state)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < VCPU_STATES; i++)
		sum += vcpu->ns[i];
	if (!sum || !(vm->states & 1u << state))
		return -1;
	return (double)vcpu->ns[state] / (double)sum * 100;
}

/* Order */

static int compare_percents(const struct top_function *one, const struct top_function *other)
{
	if (one->percent > other->percent || one->percent < other->percent)
		return one->percent < other->percent ? 1 : -1;
	return strcmp(one->function, other->function);
}

#define FUNCTION(item) (*(const struct top_function *const *)(item))

static int by_cpu(const void *left, const void *right)
{
	return compare_percents(FUNCTION(left), FUNCTION(right));
}

static int by_vm(const void *left, const void *right)
{
	int order = strcmp(FUNCTION(left)->vm->name, FUNCTION(right)->vm->name);

	if (!order && FUNCTION(left)->vm != FUNCTION(right)->vm)
		order = FUNCTION(left)->vm->pid < FUNCTION(right)->vm->pid ? -1 : 1;
	return order ? order : by_cpu(left, right);
}

static int by_process(const void *left, const void *right)
{
	int order = strcmp(FUNCTION(left)->process, FUNCTION(right)->process);

	return order ? order : by_cpu(left, right);
}

static int by_function(const void *left, const void *right)
{
	int order = strcmp(FUNCTION(left)->function, FUNCTION(right)->function);

	return order ? order : by_cpu(left, right);
}

static bool is_shown(const struct top_function *function, const char *filter)
{
	return !*filter || strcasestr(function->function, filter) ||
	       strcasestr(function->image, filter) || strcasestr(function->process, filter) ||
	       strcasestr(function->vm->name, filter);
}

int top_functions_find(struct top_functions *functions, struct top_vm *const *vms, size_t count,
		       enum top_sort sort, const char *filter)
{
	static int (*const orders[])(const void *, const void *) = { by_cpu, by_vm, by_process,
								     by_function };
	size_t all = 1;

	for (size_t i = 0; i < count; i++)
		all += vms[i]->function_count;
	*functions = (struct top_functions){ .rows = calloc(all, sizeof(*functions->rows)) };
	if (!functions->rows)
		return error_set(-ENOMEM, "no memory for the functions");
	for (size_t i = 0; i < count; i++)
		for (size_t row = 0; row < vms[i]->function_count; row++)
			if (is_shown(&vms[i]->functions[row], filter))
				functions->rows[functions->count++] = &vms[i]->functions[row];
	qsort(functions->rows, functions->count, sizeof(*functions->rows), orders[sort]);
	return 0;
}

/* Their time in other states than sleep. */
static uint64_t busy_time(const struct top_vm *vm)
{
	const uint64_t *ns = vm->total.ns;

	return ns[VCPU_GUEST] + ns[VCPU_KVM] + ns[VCPU_VMM] + ns[VCPU_RUNNING] + ns[VCPU_WAITING];
}

static int by_busy_time(const void *left, const void *right)
{
	const struct top_vm *one = *(struct top_vm *const *)left,
			    *other = *(struct top_vm *const *)right;

	if (busy_time(one) != busy_time(other))
		return busy_time(one) < busy_time(other) ? 1 : -1;
	if (one->pid != other->pid)
		return one->pid < other->pid ? -1 : 1;
	return one->fd - other->fd;
}

void top_vms_sort(struct top_vm **vms, size_t count)
{
	qsort(vms, count, sizeof(struct top_vm *), by_busy_time);
}
