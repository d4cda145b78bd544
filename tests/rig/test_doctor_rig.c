/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>

#include "tests/rig/rig.h"

static const char *state_of(json_t *report, const char *id)
{
	json_t *row;
	size_t i;

	json_array_foreach(
		json_object_get(report, "rows"), i,
		row) if (!strcmp(json_string_value(json_object_get(row, "id")),
				 id)) return json_string_value(json_object_get(row, "state"));
	return NULL;
}

static json_t *read_report(struct rig_result *result)
{
	json_t *report = json_loads(result->output, 0, NULL);

	CHECK_EQUAL(result->status, 0);
	if (!json_is_object(report))
		FAIL_TEST("no JSON: %s%s", result->output, result->errors);
	rig_result_free(result);
	return report;
}

/* From one start of the rig, for all tests that use it; never freed. */
static json_t *report_from_rig(void)
{
	static json_t *report;
	struct rig_result result;

	if (!report) {
		rig_run(&result, 250, "build/kvmscope doctor --json");
		report = read_report(&result);
	}
	return report;
}

static void check_boots_linux(json_t *report)
{
	static const char *const working[] = { "kvm.device",
					       "kvm.kernel_speed",
					       "kvm.instructions",
					       "kvm.system_call",
					       "kvm.irqchip",
					       "kvm.sync_regs",
					       "kvm.kick",
					       "kvm.msr_filter",
					       "debug.single_step",
					       "perf.cpu_clock",
					       "stat" };

	CHECK(json_is_true(json_object_get(report, "can_boot_linux")));
	for (size_t i = 0; i < sizeof(working) / sizeof(working[0]); i++) {
		const char *state = state_of(report, working[i]);

		if (!state || strcmp(state, "yes") != 0)
			FAIL_TEST("%s is %s", working[i], state ? state : "missing");
	}
}

static void check_guest_debug(json_t *report)
{
	CHECK_STRING(state_of(report, "debug.breakpoint"), "yes");
	CHECK_STRING(state_of(report, "debug.watchpoint"), "yes");
	CHECK_STRING(state_of(report, "debug.int3"), "yes");
	CHECK_STRING(state_of(report, "pmu.emulated"), "yes");
}

TEST(doctor, standard_kvm_can_boot_linux)
{
	RIG_REQUIRED();
	check_boots_linux(report_from_rig());
}

TEST(doctor, standard_kvm_supports_guest_debug)
{
	RIG_DEBUG_REGISTERS_REQUIRED();
	check_guest_debug(report_from_rig());
}

TEST(doctor, kvm_intel_can_boot_linux_and_debug_guests)
{
	struct rig_result result;
	json_t *report;

	RIG_INTEL_REQUIRED();
	rig_run_on(&result, RIG_INTEL, 250, "build/kvmscope doctor --json");
	report = read_report(&result);
	check_boots_linux(report);
	check_guest_debug(report);
	json_decref(report);
}
