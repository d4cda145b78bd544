/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope stat's states of vCPUs, on kvm_amd, for loads whose truth is known: a guest that
 * computes, alone on the rig's one CPU and beside another program; one that is in its kernel; one
 * that sleeps; and a VMM that is stopped.
 */
#include <jansson.h>
#include <string.h>

#include "tests/rig/rig.h"

#define COMMANDS                                                                                   \
	"boot() { build/kvmscope run --no-profile --no-control --kernel %s --initrd %s "           \
	"--mem 256M --timeout 150 --append \"console=ttyS0 quiet " QUICK_BOOT                      \
	" kvmscope.run=$1\" "                                                                      \
	"< /dev/null > /tmp/console 2>&1 & vm=$!; tries=0; "                                       \
	"until grep -q 'guest-init: up' /tmp/console || [ $((tries += 1)) = 100 ]; "               \
	"do sleep 1; done; sleep 2; }; "                                                           \
	"measure() { build/kvmscope stat --pid $vm --time 4 --json > build/rig/wall-$1.json; "     \
	"echo $1 $?; }; "                                                                          \
	"boot 'while+:;+do+:;+done'; measure user; "                                               \
	"while :; do :; done & other=$!; measure beside; kill $other; "                            \
	"kill -STOP $vm; measure stopped; kill -KILL $vm; "                                        \
	"boot 'dd+if=/dev/zero+of=/dev/null+bs=1M'; measure kernel; kill -KILL $vm; "              \
	"boot 'sleep+100'; measure idle; "                                                         \
	"setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -all build/kvmscope stat "     \
	"--pid $vm --time 4 --json > build/rig/wall-proc.json; echo proc $?; kill -KILL $vm"

struct times {
	json_t *json;
	double wall; /* ns */
};

static struct times open_times(const char *name)
{
	char path[64];
	struct times times;

	snprintf(path, sizeof(path), "build/rig/wall-%s.json", name);
	times.json = json_load_file(path, 0, NULL);
	times.wall = json_real_value(json_object_get(times.json, "seconds")) * 1e9;
	if (times.wall < 3.9e9)
		FAIL_TEST("%s has no times", path);
	return times;
}

static double ns_of(const struct times *times, const char *name)
{
	return (double)json_integer_value(
		json_object_get(json_object_get(times->json, "times"), name));
}

/* The share of the wall time of one vCPU. */
static double share(const struct times *times, const char *name)
{
	return ns_of(times, name) / times->wall;
}

static double kernel_share(const struct times *times)
{
	double user = ns_of(times, "guest_user_samples"),
	       kernel = ns_of(times, "guest_kernel_samples");

	CHECK(user + kernel > 100);
	return kernel / (user + kernel);
}

/* All states together are the wall time, within a percent. */
static void check_sum(const struct times *times)
{
	static const char *const all[] = { "guest_ns",   "kvm_ns",    "vmm_ns",     "running_ns",
					   "waiting_ns", "halted_ns", "blocked_ns", "asleep_ns" };
	double sum = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		sum += share(times, all[i]);
	if (sum < 0.99 || sum > 1.01)
		FAIL_TEST("the states are %.4f of the wall time", sum);
}

static void check_loads(void)
{
	struct times user = open_times("user"), beside = open_times("beside"),
		     stopped = open_times("stopped"), kernel = open_times("kernel"),
		     idle = open_times("idle"), proc = open_times("proc");

	check_sum(&user);
	check_sum(&beside);
	check_sum(&stopped);
	check_sum(&kernel);
	check_sum(&idle);
	check_sum(&proc);
	CHECK(share(&user, "guest_ns") > 0.6 && kernel_share(&user) < 0.4);
	CHECK(share(&beside, "waiting_ns") > 0.4 && share(&beside, "waiting_ns") < 0.6);
	CHECK(share(&beside, "guest_ns") > 0.25);
	CHECK(share(&stopped, "blocked_ns") > 0.98);
	CHECK(share(&kernel, "guest_ns") > 0.6 && kernel_share(&kernel) > 0.8);
	CHECK(share(&idle, "halted_ns") > 0.8 && share(&idle, "blocked_ns") < 0.05);
	CHECK(share(&proc, "asleep_ns") > 0.8 && !json_object_get(proc.json, "exits"));
	CHECK(json_object_get(proc.json, "missing") && !json_object_get(idle.json, "missing"));
	json_decref(user.json);
	json_decref(beside.json);
	json_decref(stopped.json);
	json_decref(kernel.json);
	json_decref(idle.json);
	json_decref(proc.json);
}

TEST(wall_times, states_of_known_loads)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 300, COMMANDS, kernel, initrd);
	if (!strstr(result.output, "proc 0\n"))
		FAIL_TEST("kvmscope stat failed:\n%s\n%s", result.output, result.errors);
	check_loads();
	rig_result_free(&result);
}

/* Reasons have VMX's names; a guest without devices is interrupted by the host only. */
TEST(wall_times, states_and_exits_on_kvm_intel)
{
	struct rig_result result;
	struct times times;
	const json_t *exits;

	RIG_INTEL_REQUIRED();
	rig_run_on(&result, RIG_INTEL, 200,
		   "mkdir -p build/rig; "
		   "build/kvmscope run --no-profile --no-control --kernel build/guests/guest.elf "
		   "--mem 64M --append 'program=shares rounds=1000000 chunk=100000' "
		   "> build/rig/own.out 2>&1 & vm=$!; tries=0; "
		   "until grep -qs working build/rig/own.out || [ $((tries += 1)) = 300 ]; "
		   "do sleep 0.2; done; build/kvmscope stat --pid $vm --time 4 --json "
		   "> build/rig/wall-intel.json; echo stat $?; kill $vm; wait $vm");
	if (!strstr(result.output, "stat 0\n"))
		FAIL_TEST("kvmscope stat failed:\n%s\n%s", result.output, result.errors);
	times = open_times("intel");
	check_sum(&times);
	CHECK(share(&times, "guest_ns") > 0.9);
	exits = json_object_get(times.json, "exits");
	CHECK_STRING(json_string_value(json_object_get(json_array_get(exits, 0), "reason")),
		     "EXTERNAL_INTERRUPT");
	json_decref(times.json);
	rig_result_free(&result);
}
