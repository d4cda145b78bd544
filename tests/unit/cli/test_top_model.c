/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/cli/top_model.h"
#include "vmm/cli/top_print.h"

#define NAMES(function, image, process)                                                            \
	"\"function\":\"" function "\",\"image\":\"" image "\",\"process\":\"" process "\""

static const char busy_report[] =
	"{\"seconds\":2.0,\"samples\":100,\"lost_samples\":2,\"vcpus\":["
	"{\"vcpu\":0,\"exits\":20,\"guest_ns\":75,\"halted_ns\":25},"
	"{\"vcpu\":3,\"exits\":10,\"guest_ns\":25,\"halted_ns\":75}],"
	"\"exits\":[{\"reason\":\"hlt\",\"exits\":20},{\"reason\":\"msr\",\"exits\":10}],"
	"\"functions\":["
	"{\"cpu_percent\":20," NAMES("main", "a.out",
				     "zsh") ",\"callers\":\"one\\ntwo\\n\"},"
					    "{\"cpu_percent\":70,\"samples\":70," NAMES(
						    "clear_page", "[kernel.kallsyms]",
						    "bash") ",\"kernel\":true}]}";
static const char idle_report[] =
	"{\"seconds\":1.0,\"vcpus\":[{\"vcpu\":0,\"running_ns\":10,\"asleep_ns\":90}],"
	"\"functions\":[{\"cpu_percent\":30," NAMES("memcpy", "libc.so.6", "cron") "}]}";

static int update(struct top_vm *vm, const char *text)
{
	json_t *report = json_loads(text, 0, NULL);
	int error;

	error = top_vm_update(vm, report);
	json_decref(report);
	return error;
}

/* Functions point to their VM, which must not move. */
static void open_vm(struct top_vm *vm, pid_t pid, const char *name, const char *report)
{
	*vm = (struct top_vm){ .pid = pid, .name = name, .error = "" };
	CHECK_EQUAL(update(vm, report), 0);
}

TEST(top_model, a_report_has_states_exits_and_functions)
{
	struct top_vm vm;

	open_vm(&vm, 7, "web", busy_report);
	CHECK_EQUAL(vm.vcpu_count, 2);
	CHECK_EQUAL(vm.vcpus[1].vcpu, 3);
	CHECK_EQUAL((int)top_vm_percent(&vm, &vm.vcpus[0], VCPU_GUEST), 75);
	CHECK_EQUAL((int)top_vm_percent(&vm, &vm.total, VCPU_GUEST), 50);
	CHECK_EQUAL((int)top_vm_percent(&vm, &vm.total, VCPU_WAITING), -1);
	CHECK_EQUAL((int)vm.vcpus[0].exits, 10);
	CHECK_EQUAL((int)vm.total.exits, 15);
	CHECK_STRING(vm.exit, "hlt");
	CHECK_EQUAL((int)vm.exit_percent, 66);
	CHECK_EQUAL(vm.samples, 100);
	CHECK_EQUAL(vm.lost, 2);
	CHECK_EQUAL(vm.function_count, 2);
	CHECK_STRING(vm.functions[0].callers, "one\ntwo\n");
	CHECK_STRING(vm.functions[1].callers, "");
	CHECK(vm.functions[1].kernel && !vm.functions[0].kernel);
	top_vm_clear(&vm);
	CHECK(!vm.report && !vm.function_count);
}

static void check_order(struct top_vm *const *vms, enum top_sort sort, const char *filter,
			const char *expected)
{
	struct top_functions functions;
	char names[128] = "";

	REQUIRE_EQUAL(top_functions_find(&functions, vms, 2, sort, filter), 0);
	for (size_t i = 0; i < functions.count; i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s ",
			 functions.rows[i]->function);
	free(functions.rows);
	CHECK_STRING(names, expected);
}

TEST(top_model, functions_are_sorted_and_filtered)
{
	struct top_vm web, db;
	struct top_vm *vms[] = { &db, &web };

	open_vm(&web, 7, "web", busy_report);
	open_vm(&db, 8, "db", idle_report);
	check_order(vms, TOP_BY_CPU, "", "clear_page memcpy main ");
	check_order(vms, TOP_BY_VM, "", "memcpy clear_page main ");
	check_order(vms, TOP_BY_PROCESS, "", "clear_page memcpy main ");
	check_order(vms, TOP_BY_FUNCTION, "", "clear_page main memcpy ");
	check_order(vms, TOP_BY_CPU, "LIBC", "memcpy ");
	check_order(vms, TOP_BY_CPU, "web", "clear_page main ");
	check_order(vms, TOP_BY_CPU, "zsh", "main ");
	check_order(vms, TOP_BY_CPU, "nothing", "");
	top_vms_sort(vms, 2);
	CHECK(vms[0] == &web);
	top_vm_clear(&web);
	top_vm_clear(&db);
}

/* Names are the guest's. */
TEST(top_model, names_do_not_control_the_terminal)
{
	struct top_vm vm;
	struct top_vm *vms[] = { &vm };
	const struct top_view view = { .columns = 80, .delay = 2 };
	struct top_functions functions;
	char text[1024] = "";
	FILE *to = fmemopen(text, sizeof(text), "w");

	open_vm(&vm, 7, "web",
		"{\"functions\":[{\"cpu_percent\":1,"
		"\"callers\":\"a\\u001b[2J\\n\\u202eb\\n\"," NAMES("f\\u001b[31m\\n", "\\u009bi",
								   "p\\u0007") "}]}");
	CHECK_STRING(vm.functions[0].function, "f?[31m?");
	CHECK_STRING(vm.functions[0].image, "?i");
	CHECK_STRING(vm.functions[0].process, "p?");
	CHECK_STRING(vm.functions[0].callers, "a?[2J\n?b  \n");
	REQUIRE_EQUAL(top_functions_find(&functions, vms, 1, TOP_BY_CPU, ""), 0);
	top_print_functions(&functions, 0, 10, 1, &view, to);
	fclose(to);
	free(functions.rows);
	CHECK(!strpbrk(text, "\033\007"));
	CHECK(strstr(text, "   1.0 p?      [.] f?[31m?  ?i\n"));
	top_vm_clear(&vm);
}

/* The process that reads a guest's data may have been taken over. */
TEST(top_model, a_report_of_another_shape_is_harmless)
{
	static const char *const odd[] = {
		"{}",
		"{\"vcpus\":7,\"functions\":{\"a\":1},\"exits\":\"x\",\"seconds\":\"y\"}",
		"{\"vcpus\":[1,null,{\"vcpu\":-1,\"guest_ns\":-5}],\"functions\":[null,[],{}]}",
		"{\"functions\":[{\"function\":7,\"callers\":[],\"cpu_percent\":\"a\"}]}",
		"{\"exits\":[{\"exits\":5}]}",
	};
	struct top_vm vm = { .pid = 7, .name = "", .error = "" };
	struct top_vm *vms[] = { &vm };
	const struct top_view view = { .per_vcpu = true };
	json_t *none = json_array();
	FILE *to = fopen("/dev/null", "w");

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		CHECK_EQUAL(update(&vm, odd[i]), 0);
		top_print_vms(vms, 1, &view, to);
	}
	CHECK(top_vm_update(&vm, none) == -22 && !vm.report);
	json_decref(none);
	fclose(to);
	top_vm_clear(&vm);
}
