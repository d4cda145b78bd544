/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time outside of the guest as events (kvmscope attach --event kvm:exit,kvm:off-cpu) on kvm_amd: a
 * guest with a function for each kind of exit. Each exit must be attributed to its function; the
 * sum of the periods must be the time that kvmscope stat measures in the same interval; and perf
 * must show both events.
 *
 * With --host-stacks, frames of the host follow those of the guest.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/report/time_ranges.h"

#define DIRECTORY "build/rig/outside"
#define PERIOD    (1e9 / 999) /* ns, by the frequency below */
#define COST      150e3       /* ns for a sample in emulation; measured: 40 to 80 us */

/* The symbols of the L1 kernel are in its /proc. */
#define HOST_STACKS                                                                                \
	"for perspective in guest host; do "                                                       \
	"build/kvmscope attach --pid $vm -F 199 --backend bpf --host-stacks --time 3 "             \
	"--perspective $perspective -o " DIRECTORY "/$perspective > /tmp/attach 2>&1; "            \
	"echo $perspective $?; cat /tmp/attach; done; "                                            \
	"build/kvmscope export --format folded -o " DIRECTORY "/folded " DIRECTORY "/guest; "      \
	"perf script -i " DIRECTORY "/guest > " DIRECTORY "/guest.script 2>&1; echo script $?; "   \
	"perf script -i " DIRECTORY "/host > " DIRECTORY "/host.script 2>&1; "

/* kvmscope stat measures within the time of the recording, which begins when the kernel is known.
 * Its first table has the exits of the interval only. */
#define COMMANDS                                                                                    \
	"export HOME=$PWD/" DIRECTORY "; "                                                          \
	"build/kvmscope run --no-profile --no-control --kernel %s --initrd %s --mem 256M "          \
	"--append 'console=ttyS0 " QUICK_BOOT " kvmscope.run=exits+1000' "                          \
	"< /dev/null > /tmp/console 2>&1 & vm=$!; tries=0; "                                        \
	"until grep -q 'guest-init: up' /tmp/console || [ $((tries += 1)) = 1000 ]; do sleep 0.2; " \
	"done; sleep 1; "                                                                           \
	"build/kvmscope attach --pid $vm -F 999 --event cpu-clock,kvm:exit,kvm:off-cpu "            \
	"-o " DIRECTORY "/data > /tmp/attach 2>&1 & attach=$!; tries=0; "                           \
	"until [ $(stat -c %%s " DIRECTORY "/data 2> /dev/null || echo 0) -gt 30000 ] || "          \
	"[ $((tries += 1)) = 300 ]; do sleep 0.2; done; "                                           \
	"build/kvmscope stat --pid $vm --json --interval 15 --time 15 > " DIRECTORY "/stat.json; "  \
	"kill -INT $attach; wait $attach; echo attach $?; cat /tmp/attach; " HOST_STACKS            \
	"kill -KILL $vm; "                                                                          \
	"perf report -i " DIRECTORY "/data --stdio -g none 2>&1 | grep 'of event'; "                \
	"perf script -i " DIRECTORY "/data 2>&1 | grep 'BPF string' | sort | uniq -c"

/* ns of an event, and its samples. */
struct times {
	double samples, all, cpuid, cpuid_in_its_function, io, io_in_its_function;
	double preempted, halted;
};

static bool has_function(const struct profile_stack *stack, const char *name)
{
	return stack->depth > 1 && stack->frames[1]->symbol &&
	       !strcmp(stack->frames[1]->symbol, name);
}

static void add_stack(struct times *times, const struct profile_stack *stack)
{
	const char *leaf = stack->frames[0]->symbol ? stack->frames[0]->symbol : "";
	double weight = (double)stack->weight;
	bool known = stack->depth > 1 && stack->frames[1]->symbol;

	times->samples += (double)stack->samples;
	times->all += weight;
	times->preempted += strcmp(leaf, "[off-cpu preempted]") ? 0 : weight;
	times->halted += strcmp(leaf, "[off-cpu halted]") ? 0 : weight;
	if (!known)
		return;
	if (!strcmp(leaf, "[exit cpuid]")) {
		times->cpuid += weight;
		times->cpuid_in_its_function += has_function(stack, "execute_cpuid") ? weight : 0;
	}
	if (!strcmp(leaf, "[exit io]")) {
		times->io += weight;
		times->io_in_its_function += has_function(stack, "write_port") ? weight : 0;
	}
}

static bool read_times(struct times *times, const char *event, const json_t *stat)
{
	double end = json_number_value(json_object_get(stat, "end")),
	       seconds = json_number_value(json_object_get(stat, "seconds"));
	struct time_ranges range = { .list = { { .start = (uint64_t)((end - seconds) * 1e9),
						 .end = (uint64_t)(end * 1e9) } },
				     .count = 1 };
	const struct profile_options options = { .input = DIRECTORY "/data",
						 .sources.buildid_dir = DIRECTORY "/.debug",
						 .times = &range,
						 .event = event,
						 .vcpu = -1 };
	struct profile *profile;

	*times = (struct times){ 0 };
	if (profile_load(&profile, &options))
		return false;
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_stack(times, profile_stack(profile, i));
	profile_free(profile);
	return true;
}

/* ns of all exits in STAT. */
static double exits_of(const json_t *stat)
{
	const json_t *row;
	double ns = 0;
	size_t i;

	json_array_foreach(json_object_get(stat, "exits"), i, row) ns +=
		json_number_value(json_object_get(row, "ns"));
	return ns;
}

/* ns of the longest exit in STAT. */
static double longest_of(const json_t *stat)
{
	const json_t *row;
	double ns = 0;
	size_t i;

	json_array_foreach(json_object_get(stat, "exits"), i, row) ns =
		fmax(ns, json_number_value(json_object_get(row, "max_ns")));
	return ns;
}

static double state_of(const json_t *stat, const char *name)
{
	return json_number_value(json_object_get(json_object_get(stat, "times"), name));
}

/* True if a line of the file NAME has all PARTS in this order. */
static bool has_line(const char *name, const char *const *parts)
{
	FILE *file = fopen(name, "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (file && !found && getline(&line, &room, file) > 0) {
		const char *at = line;

		for (size_t i = 0; at && parts[i]; i++)
			at = strstr(at, parts[i]);
		found = at;
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* Of a guest's process: its frames, why it left the guest, the VMM's call, the host's kernel and
 * its modules. perf has the host's frames by name. */
static void check_host_stacks(const char *output)
{
	static const char *const folded[] = {
		"exits;",           ";execute_cpuid;[exit cpuid];", "ioctl;", "do_syscall_64;",
		";kvm_vcpu_ioctl;", ";kvm_arch_vcpu_ioctl_run",     NULL
	};
	static const char *const kernel[] = { "__x64_sys_ioctl", NULL };
	static const char *const module[] = { " kvm_arch_vcpu_ioctl_run+", NULL };
	static const char *const vmm[] = { "ioctl+", "libc.so", NULL };
	static const char *const guest[] = { "execute_cpuid", NULL };

	if (!strstr(output, "guest 0\n") || !strstr(output, "host 0\n") ||
	    !strstr(output, "script 0\n"))
		FAIL_TEST("no recording of host stacks:\n%s", output);
	CHECK(has_line(DIRECTORY "/folded", folded));
	CHECK(has_line(DIRECTORY "/host.script", kernel));
	CHECK(has_line(DIRECTORY "/host.script", module));
	CHECK(has_line(DIRECTORY "/host.script", vmm));
	CHECK(has_line(DIRECTORY "/guest.script", guest));
	CHECK(!has_line(DIRECTORY "/guest.script", kernel));
}

TEST(outside_rig, exits_belong_to_the_functions_that_cause_them)
{
	const char *kernel = rig_kernel("6.1");
	struct rig_result result;
	struct times exits, off_cpu;
	double measured, waiting;
	json_t *stat;

	RIG_REQUIRED();
	if (!kernel)
		return;
	rig_run_here(&result, 100,
		     "mkdir -p " DIRECTORY "; rm -rf " DIRECTORY "/*; "
		     "tests/rig/initrd --output build/rig/exits.cpio build/rig/exits");
	CHECK_EQUAL(result.status, 0);
	rig_result_free(&result);
	rig_run(&result, 500, COMMANDS, kernel, "build/rig/exits.cpio");
	stat = json_load_file(DIRECTORY "/stat.json", JSON_DISABLE_EOF_CHECK, NULL);
	if (!strstr(result.output, "attach 0\n") || !stat)
		FAIL_TEST("no recording:\n%s\n%s", result.output, result.errors);
	CHECK(read_times(&exits, "kvm:exit", stat));
	CHECK(read_times(&off_cpu, "kvm:off-cpu", stat));
	measured = exits_of(stat);
	waiting = state_of(stat, "waiting_ns") + state_of(stat, "halted_ns") +
		  state_of(stat, "blocked_ns");
	printf("exits: %.3f s by samples, %.3f s by stat; off CPU: %.3f s, %.3f s; %.0f and %.0f samples\n",
	       exits.all / 1e9, measured / 1e9, off_cpu.all / 1e9, waiting / 1e9, exits.samples,
	       off_cpu.samples);

	/* Of all, the kernel executes some of its own. */
	CHECK(exits.cpuid > 0 && exits.io > 0);
	if (exits.cpuid_in_its_function < 0.97 * exits.cpuid ||
	    exits.io_in_its_function < 0.9 * exits.io)
		FAIL_TEST("cpuid: %.0f of %.0f ns, io: %.0f of %.0f ns in their functions",
			  exits.cpuid_in_its_function, exits.cpuid, exits.io_in_its_function,
			  exits.io);
	CHECK(off_cpu.preempted > 0 && off_cpu.halted > 0);
	/* Sample points differ from the time by less than a period. One exit can end between the
	 * readings of the clock and the counts. For kvmscope stat, whose program runs later, the
	 * exit ends after the samples are recorded. */
	CHECK(fabs(exits.all - measured) <
	      PERIOD + longest_of(stat) + COST * (exits.samples + off_cpu.samples));
	/* kvmscope stat divides what lies across the start and the end, a sample is not divided. */
	CHECK(fabs(off_cpu.all - waiting) < PERIOD + 2 * longest_of(stat));
	CHECK(strstr(result.output, "of event 'cpu-clock'") &&
	      strstr(result.output, "of event 'kvm:exit'") &&
	      strstr(result.output, "of event 'kvm:off-cpu'"));
	CHECK(strstr(result.output, "\"exit cpuid\"") &&
	      strstr(result.output, "\"off-cpu halted\""));
	check_host_stacks(result.output);
	json_decref(stat);
	rig_result_free(&result);
}

/* One of them with exits, in a daemon that has BPF programs for both. */
TEST(outside_rig, domains_of_the_daemon_have_the_events_that_they_request)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 250, "build/kvmscope-tests --gtest_filter='daemon.a_domain_has*' 2>&1");
	if (!strstr(result.output, "[  PASSED  ] 1 test"))
		FAIL_TEST("%s", result.output);
	rig_result_free(&result);
}
