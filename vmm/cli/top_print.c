/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_print.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* Columns of a name in a table of unlimited width. */
#define NAME_MAX_WIDTH    24
#define PROCESS_MAX_WIDTH 15 /* as the kernel cuts them (TASK_COMM_LEN) */
#define NAME_MIN_WIDTH    7

static const char *const titles[VCPU_STATES] = {
	[VCPU_GUEST] = "guest",   [VCPU_KVM] = "KVM",      [VCPU_VMM] = "VMM",
	[VCPU_RUNNING] = "onCPU", [VCPU_WAITING] = "wait", [VCPU_HALTED] = "halt",
	[VCPU_BLOCKED] = "block", [VCPU_ASLEEP] = "sleep",
};

/* Text of others in WIDTH columns, padded. Each character counts as one column. */
static void print_cell(const char *text, unsigned int width, FILE *to)
{
	unsigned int used = 0;

	for (; *text && used < width; used++) {
		fputc(*text++, to);
		while ((*text & 0xc0) == 0x80)
			fputc(*text++, to);
	}
	fprintf(to, "%*s ", (int)(width - used), "");
}

static unsigned int characters(const char *text)
{
	unsigned int count = 0;

	for (; *text; text++)
		count += (*text & 0xc0) != 0x80;
	return count;
}

static unsigned int at_most(unsigned int value, unsigned int most)
{
	return value < most ? value : most;
}

/* A fifth of a narrow terminal. */
static unsigned int width_within(unsigned int wanted, unsigned int most,
				 const struct top_view *view)
{
	unsigned int width = at_most(wanted, most);

	if (view->columns && width > view->columns / 5)
		width = view->columns / 5;
	return width < NAME_MIN_WIDTH ? NAME_MIN_WIDTH : width;
}

static unsigned int name_width(struct top_vm *const *vms, size_t count, const struct top_view *view)
{
	unsigned int widest = 0;

	for (size_t i = 0; i < count; i++)
		if (characters(vms[i]->name) > widest)
			widest = characters(vms[i]->name);
	return width_within(widest, NAME_MAX_WIDTH, view);
}

void top_print_summary(struct top_vm *const *vms, size_t count, const struct top_view *view,
		       FILE *to)
{
	uint64_t samples = 0, lost = 0;
	time_t now = time(NULL);
	struct tm local;
	char clock[16];
	size_t vcpus = 0;

	for (size_t i = 0; i < count; i++) {
		vcpus += vms[i]->vcpu_count;
		samples += vms[i]->samples;
		lost += vms[i]->lost;
	}
	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &local));
	fprintf(to, "kvmscope top  %s  %zu VM%s, %zu vCPU%s  every %.3g s  %llu samples, %llu lost",
		clock, count, count == 1 ? "" : "s", vcpus, vcpus == 1 ? "" : "s", view->delay,
		(unsigned long long)samples, (unsigned long long)lost);
	fputc('\n', to);
}

static void print_states(const struct top_vm *vm, const struct top_vcpu *vcpu, unsigned int states,
			 FILE *to)
{
	for (unsigned int i = 0; i < VCPU_STATES; i++) {
		double percent = top_vm_percent(vm, vcpu, i);

		if (!(states & 1u << i))
			continue;
		if (percent < 0)
			fprintf(to, " %5s", "-");
		else
			fprintf(to, " %5.1f", percent);
	}
	if (vcpu->exits < 0)
		fprintf(to, " %8s", "-");
	else
		fprintf(to, " %8.0f", vcpu->exits);
}

static void print_vm(const struct top_vm *vm, unsigned int width, unsigned int states, FILE *to)
{
	fprintf(to, "%7d ", vm->pid);
	print_cell(vm->name, width, to);
	if (!vm->report) {
		fprintf(to, "%s\n", *vm->error ? vm->error : "sampling starts");
		return;
	}
	fprintf(to, "%4zu", vm->vcpu_count);
	print_states(vm, &vm->total, states, to);
	if (*vm->exit)
		fprintf(to, "  %s %.0f%%", vm->exit, vm->exit_percent);
	fputc('\n', to);
}

void top_print_vms(struct top_vm *const *vms, size_t count, const struct top_view *view, FILE *to)
{
	unsigned int width = name_width(vms, count, view), states = 0;

	for (size_t i = 0; i < count; i++)
		states |= vms[i]->states;
	fprintf(to, "%7s ", "PID");
	print_cell("VM", width, to);
	fprintf(to, "vCPU");
	for (unsigned int i = 0; i < VCPU_STATES; i++)
		if (states & 1u << i)
			fprintf(to, " %5s", titles[i]);
	fprintf(to, " %8s  %s\n", "exits/s", "most");
	if (!count)
		fprintf(to, "no VM of KVM that this user may inspect runs here%s\n",
			geteuid() ? " (root may inspect all)" : "");
	for (size_t i = 0; i < count; i++) {
		print_vm(vms[i], width, states, to);
		for (size_t vcpu = 0; view->per_vcpu && vcpu < vms[i]->vcpu_count; vcpu++) {
			fprintf(to, "%*s#%-3u", 9 + (int)width, "", vms[i]->vcpus[vcpu].vcpu);
			print_states(vms[i], &vms[i]->vcpus[vcpu], states, to);
			fputc('\n', to);
		}
	}
}

/* The kernel needs no image. */
static void print_function(const struct top_function *function, unsigned int name,
			   unsigned int process, FILE *to)
{
	fprintf(to, "%6.1f ", function->percent);
	if (name)
		print_cell(function->vm->name, name, to);
	print_cell(*function->process ? function->process : "-", process, to);
	fprintf(to, "%s%s", function->kernel ? "[k] " : "[.] ", function->function);
	if (strcmp(function->image, "[kernel.kallsyms]") != 0)
		fprintf(to, "  %s", function->image);
	fputc('\n', to);
}

void top_print_functions(const struct top_functions *functions, size_t first, size_t most,
			 size_t count, const struct top_view *view, FILE *to)
{
	unsigned int name = 0, process = 0;

	for (size_t i = 0; i < functions->count; i++) {
		const struct top_function *row = functions->rows[i];

		if (characters(row->vm->name) > name)
			name = characters(row->vm->name);
		if (characters(row->process) > process)
			process = characters(row->process);
	}
	name = count > 1 ? width_within(name, NAME_MAX_WIDTH, view) : 0;
	process = width_within(process, PROCESS_MAX_WIDTH, view);
	fprintf(to, "%6s ", "%CPU");
	if (name)
		print_cell("VM", name, to);
	print_cell("process", process, to);
	fputs("function", to);
	if (view->sort != TOP_BY_CPU)
		fprintf(to, "  (by %s)", top_sort_names[view->sort]);
	if (*view->filter)
		fprintf(to, "  (with '%s')", view->filter);
	fputc('\n', to);
	for (size_t i = first; i < functions->count && i - first < most; i++)
		print_function(functions->rows[i], name, process, to);
}

static json_t *vm_json(const struct top_vm *vm)
{
	json_t *json = json_pack("{s:i, s:s}", "pid", (int)vm->pid, "name", vm->name);
	json_t *report = json_deep_copy(vm->report), *row;
	size_t i;

	if (vm->fd)
		json_object_set_new(json, "vm", json_integer(vm->fd));
	if (*vm->error)
		json_object_set_new(json, "error", json_string(vm->error));
	json_array_foreach(json_object_get(report, "functions"), i, row)
		json_object_del(row, "callers");
	if (report)
		json_object_update_missing(json, report);
	json_decref(report);
	return json;
}

json_t *top_json(struct top_vm *const *vms, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, vm_json(vms[i]));
	return json_pack("{s:I, s:o}", "time", (json_int_t)time(NULL), "vms", list);
}
