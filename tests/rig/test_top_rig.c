/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope top on kvm_amd: the functions of a guest with known shares, the states and exits of its
 * vCPU, and another VM that comes and goes.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "tests/kvm/function_shares.h"
#include "tests/rig/rig.h"

#define GUEST                                                                                      \
	"build/kvmscope run --no-profile --no-control --kernel build/guests/guest.elf --mem 64M "  \
	"--append 'program=shares rounds=1000000 chunk=100000' > /tmp/$1.out 2>&1 & "

/* The second VM starts while top runs and is killed, so that its end is not announced. */
#define COMMANDS                                                                                   \
	"export TMPDIR=/tmp/top; mkdir -p $TMPDIR; start() { " GUEST "vm=$!; tries=0; "            \
	"until grep -qs working /tmp/$1.out || [ $((tries += 1)) = 500 ]; do sleep 0.2; done; }; " \
	"wait_for() { tries=0; until tail -n 500 build/rig/top-all.json | grep -q \"$1\" || "      \
	"[ $((tries += 1)) = 300 ]; do sleep 0.2; done; }; "                                       \
	"start first; first=$vm; "                                                                 \
	"build/kvmscope top --pid $first --no-call-graph -k build/guests/guest.elf -F 250 "        \
	"-n 1 -d 8 --json > build/rig/top-one.json; echo one $?; "                                 \
	"build/kvmscope top --no-call-graph -d 1 --json > build/rig/top-all.json & top=$!; "       \
	"wait_for '\"functions\"'; start second; second=$vm; "                                     \
	"wait_for \"\\\"pid\\\": $second\"; kill -KILL $second; sleep 4; "                         \
	"wait_for \"\\\"pid\\\": $first\"; kill -INT $top; wait $top; echo all $?; "               \
	"echo vms $first $second; kill $first; wait $first; ls $TMPDIR | grep -c kvmscope-"

static const json_t *vm_of(const json_t *object, pid_t pid)
{
	const json_t *vms = json_object_get(object, "vms"), *vm;
	size_t i;

	json_array_foreach(vms, i,
			   vm) if (json_integer_value(json_object_get(vm, "pid")) == pid) return vm;
	return NULL;
}

/* Samples have unequal weights where timers are late, so they count half. */
static void check_shares(const json_t *vm)
{
	static const char *const names[] = { "share_sixty", "share_thirty", "share_ten" };
	const json_t *functions = json_object_get(vm, "functions"), *row;
	double of[3] = { 0 }, all, samples = 0;
	size_t i;

	json_array_foreach(
		functions, i,
		row) for (int name = 0; name < 3;
			  name++) if (!strcmp(json_string_value(json_object_get(row, "function")),
					      names[name]))
	{
		of[name] += json_number_value(json_object_get(row, "cpu_percent"));
		samples += (double)json_integer_value(json_object_get(row, "samples"));
	}
	all = of[0] + of[1] + of[2];
	CHECK(samples > 100);
	for (int name = 0; name < 3; name++)
		if (!(fabs(of[name] / all * 100 - function_shares_truth[name]) <
		      share_bound(samples / 2, 0.6, 4)))
			FAIL_TEST("%s has %.1f %% of %.0f samples, not %.0f %%", names[name],
				  of[name] / all * 100, samples, function_shares_truth[name]);
}

static double ns_of(const json_t *vcpu, const char *state)
{
	return (double)json_integer_value(json_object_get(vcpu, state));
}

/* All states are the wall time; the guest computes, and the functions have that time. */
static void check_states(const json_t *vm)
{
	const json_t *vcpu = json_array_get(json_object_get(vm, "vcpus"), 0);
	double wall = json_number_value(json_object_get(vm, "seconds")) * 1e9;
	double guest = ns_of(vcpu, "guest_ns"), asleep;

	asleep = ns_of(vcpu, "halted_ns") + ns_of(vcpu, "blocked_ns");
	CHECK(wall > 7e9);
	CHECK(fabs(guest + ns_of(vcpu, "kvm_ns") + ns_of(vcpu, "vmm_ns") +
		   ns_of(vcpu, "waiting_ns") + asleep - wall) < wall * 0.02);
	CHECK(guest > wall * 0.1 && asleep < wall * 0.1);
	CHECK(json_integer_value(json_object_get(vcpu, "exits")) > 10);
	CHECK(json_array_size(json_object_get(vm, "exits")) > 0);
}

/* Follows the objects of top-all.json: the second VM appears and disappears. */
static void check_vms(pid_t first, pid_t second)
{
	FILE *file = fopen("build/rig/top-all.json", "re");
	bool came = false, gone = false;
	json_t *object;

	if (!file)
		FAIL_TEST("build/rig/top-all.json is missing");
	while (file && (object = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
		bool there = vm_of(object, second);

		CHECK(vm_of(object, first) != NULL);
		gone = came && !there;
		came |= there;
		json_decref(object);
	}
	if (file)
		fclose(file);
	CHECK(came && gone);
}

TEST(top_rig, functions_states_and_vms)
{
	const char *vms;
	struct rig_result result;
	int first = 0, second = 0;
	json_t *one;

	RIG_REQUIRED();
	rig_run(&result, 250, COMMANDS);
	vms = strstr(result.output, "vms ");
	if (!strstr(result.output, "one 0\n") || !strstr(result.output, "all 0\n") || !vms ||
	    sscanf(vms, "vms %d %d", &first, &second) != 2)
		FAIL_TEST("kvmscope top failed:\n%s\n%s", result.output, result.errors);
	/* Its directories are removed. */
	CHECK(strstr(result.output, "\n0\n"));
	one = json_load_file("build/rig/top-one.json", 0, NULL);
	CHECK(vm_of(one, first) != NULL);
	check_shares(vm_of(one, first));
	check_states(vm_of(one, first));
	json_decref(one);
	check_vms(first, second);
	rig_result_free(&result);
}
