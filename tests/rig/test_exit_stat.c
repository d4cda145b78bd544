/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope stat beside perf kvm stat, on a Debian guest that boots on kvm_amd. The VMM is stopped
 * while both start and end, so both see the same exits and the counts have to be equal. The guest
 * boots and then sleeps (HLT).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"

#define COMMANDS                                                                                       \
	"build/kvmscope run --no-profile --no-control --kernel %s --initrd %s --mem 256M "             \
	"--timeout 150 --append 'console=ttyS0 " QUICK_BOOT " kvmscope.run=sleep+60' "                 \
	"< /dev/null > /tmp/console 2>&1 & "                                                           \
	"until grep -q 'Linux version' /tmp/console; do sleep 0.5; done; "                             \
	"vm=$(pgrep -n -x kvmscope); kill -STOP $vm; "                                                 \
	"perf kvm stat record -m 8192 -p $vm -o /tmp/kvm.data > /tmp/perf 2>&1 & perf=$!; "            \
	"build/kvmscope stat --pid $vm --json --accesses > build/rig/exit-stat.json & stat=$!; "       \
	"sleep 6; kill -CONT $vm; tries=0; "                                                           \
	"until grep -q 'guest-init: up' /tmp/console || [ $((tries += 1)) = 100 ]; do sleep 1; done; " \
	"sleep 3; kill -STOP $vm; sleep 1; "                                                           \
	"kill -INT $stat; wait $stat; echo stat $?; kill -INT $perf; wait $perf; "                     \
	"grep -i lost /tmp/perf; "                                                                     \
	"for event in vmexit mmio ioport msr; do "                                                     \
	"perf kvm -i /tmp/kvm.data stat report --event=$event 2>&1 | "                                 \
	"awk -v event=$event '$NF == \")\" { sub(\"%%.*\", \"\"); n = $(NF - 1); "                     \
	"sub(\" *[0-9]+ +[0-9.]+$\", \"\"); sub(\"^ +\", \"\"); print event \" \" n \" \" $0 }'; "     \
	"done; kill -KILL $vm"

/* The number of exits of REASON in TABLE; 0: it is not in it. */
static json_int_t exits_of(const json_t *table, const char *reason)
{
	const json_t *row;
	size_t i;

	json_array_foreach(
		table, i,
		row) if (!strcmp(json_string_value(json_object_get(row, "reason")),
				 reason)) return json_integer_value(json_object_get(row, "exits"));
	return 0;
}

/* perf's name of an access, "0x3f8:POUT" or "0x10:W". */
static bool has_name(const json_t *row, const char *name)
{
	const char *direction = json_string_value(json_object_get(row, "direction"));
	char own[64];

	if (!direction)
		return false;
	snprintf(own, sizeof(own), "%#llx:%s",
		 (unsigned long long)json_integer_value(json_object_get(row, "address")),
		 !strcmp(direction, "in")      ? "PIN"
		 : !strcmp(direction, "out")   ? "POUT"
		 : !strcmp(direction, "write") ? "W"
					       : "R");
	return !strcmp(own, name);
}

/* The number of accesses of KIND with perf's NAME in TABLE; 0: they are not in it. */
static json_int_t accesses_of(const json_t *table, const char *kind, const char *name)
{
	const json_t *row;
	size_t i;

	json_array_foreach(
		table, i,
		row) if (!strcmp(json_string_value(json_object_get(row, "kind")), kind) &&
			 has_name(row, name)) return json_integer_value(json_object_get(row,
											"count"));
	return 0;
}

/* Returns the number of rows in OUTPUT, lines "EVENT COUNT NAME" of perf, that STAT has, too. */
static size_t compare(const char *output, const json_t *stat, bool accesses)
{
	const json_t *table = json_object_get(stat, accesses ? "accesses" : "exits");
	size_t equal = 0, ignored = 0;

	for (const char *line = output; line; line = strchr(line, '\n')) {
		char event[16], name[64];
		long count;
		json_int_t own;

		line += *line == '\n';
		if (sscanf(line, "%15s %ld %63[^\n]", event, &count, name) != 3 ||
		    (strcmp(event, "vmexit") && strcmp(event, "mmio") && strcmp(event, "ioport") &&
		     strcmp(event, "msr")) ||
		    !strcmp(event, "vmexit") == accesses)
			continue;
		own = accesses ? accesses_of(table, event, name) : exits_of(table, name);
		/* perf ignores an access that the VM completes before its first entry: the one that
		 * it was stopped in (perf: per_vcpu_record()). */
		if (own == count || (accesses && own == count + 1 && !ignored++))
			equal++;
		else
			FAIL_TEST("%s %s: kvmscope stat has %lld, perf kvm stat %ld", event, name,
				  (long long)own, count);
	}
	return equal;
}

static void check_row(const json_t *row, double seconds)
{
	double exits = (double)json_integer_value(json_object_get(row, "exits")),
	       total = (double)json_integer_value(json_object_get(row, "ns")),
	       most = (double)json_integer_value(json_object_get(row, "max_ns")),
	       half = (double)json_integer_value(json_object_get(row, "p50_ns")),
	       late = (double)json_integer_value(json_object_get(row, "p99_ns"));

	CHECK(exits > 0 && half > 0);
	CHECK(half <= late && late <= most && most <= total && total <= exits * most);
	CHECK(total <= seconds * 1e9);
}

TEST(exit_stat, counts_equal_those_of_perf_kvm_stat)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;
	json_t *stat;
	const json_t *table, *row, *accesses;
	size_t i, hypercalls = 0;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 200, COMMANDS, kernel, initrd);
	stat = json_load_file("build/rig/exit-stat.json", 0, NULL);
	table = json_object_get(stat, "exits");
	if (!strstr(result.output, "stat 0\n") || !json_array_size(table))
		FAIL_TEST("kvmscope stat has no counts:\n%s\n%s", result.output, result.errors);
	json_array_foreach(table, i, row)
		check_row(row, json_real_value(json_object_get(stat, "seconds")));
	CHECK(compare(result.output, stat, false) == json_array_size(table));
	/* perf kvm stat has no hypercalls. */
	accesses = json_object_get(stat, "accesses");
	json_array_foreach(accesses, i, row) hypercalls += !json_object_get(row, "direction");
	CHECK(compare(result.output, stat, true) + hypercalls == json_array_size(accesses));
	CHECK(accesses_of(accesses, "ioport", "0x3f8:POUT") > 1000 &&
	      accesses_of(accesses, "mmio", "0xfec00000:W") &&
	      accesses_of(accesses, "msr", "0x6e0:W"));
	CHECK(exits_of(table, "io") && exits_of(table, "msr") && exits_of(table, "npf") &&
	      exits_of(table, "hlt") && exits_of(table, "cpuid"));
	json_decref(stat);
	rig_result_free(&result);
}

/* The threads are confined as in each run. */
/* The sum of the states of the wall time, in %. */
static double wall_time_of(const char *text)
{
	const char *line = strstr(text, "\n% ");
	double sum = 0, part;
	char *next;

	if (!line)
		return 0;
	for (line += 2; part = strtod(line, &next), next != line; line = next)
		sum += part;
	return sum;
}

#define EVENTS "build/rig/run-events"

/* The guest's console is a serial port: io_serial_out() of its kernel causes most exits "io". */
static void check_events(const char *text)
{
	const char *line = strstr(text, "serial ");
	unsigned int console = 0, all = 0;

	if (!line || sscanf(line, "serial %u of %u", &console, &all) != 2 || console < all / 2 ||
	    !console)
		FAIL_TEST("the exits are not those of the console:\n%s", text);
	CHECK(strstr(text, "of event kvm:off-cpu\n"));
	CHECK(strstr(text, "# Wall ") && strstr(text, "% kvm, ") && strstr(text, "% halted"));
}

TEST(exit_stat, run_prints_and_records_its_exits)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel || !initrd)
		return;
	rig_run(&result, 400,
		"mkdir -p " EVENTS "; export HOME=$PWD/" EVENTS "; "
		"build/kvmscope run --stat --event cpu-clock,kvm:exit,kvm:off-cpu -o " EVENTS
		"/data --no-control --kernel %s --initrd %s --mem 256M "
		"--append 'console=ttyS0 " QUICK_BOOT "' < /dev/null > /dev/null; status=$?; "
		"build/kvmscope export -i " EVENTS "/data -f folded --event kvm:exit | "
		"awk '/;\\[exit io\\] / { all += $NF; if (/io_serial_out;/) serial += $NF } "
		"END { printf \"serial %%d of %%d\\n\", serial, all }'; "
		"build/kvmscope export -i " EVENTS "/data -f folded --event kvm:off-cpu | "
		"awk 'END { print NR, \"of event kvm:off-cpu\" }'; "
		"build/kvmscope report -i " EVENTS "/data | grep '^#'; exit $status",
		kernel, initrd);
	if (result.status ||
	    !strstr(result.errors, "wall time         guest       KVM       VMM") ||
	    !strstr(result.errors, "\nexit reason ") || !strstr(result.errors, "\nio ") ||
	    !strstr(result.errors, "\nnpf ") || strstr(result.errors, "exit to kvmscope"))
		FAIL_TEST("status %d:\n%s", result.status, result.errors);
	printf("%s%s", result.errors, result.output);
	check_events(result.output);
	/* The thread of the one vCPU only, which lasts as long as the run. */
	CHECK(wall_time_of(result.errors) > 95 && wall_time_of(result.errors) < 101);
	rig_result_free(&result);
}

TEST(exit_stat, addresses_that_a_guest_chooses_are_bounded)
{
	struct rig_result result;

	RIG_REQUIRED();
	rig_run(&result, 150,
		"build/kvmscope-tests --gtest_filter='stat_kvm.other_accesses*' 2>&1");
	if (!strstr(result.output, "[  PASSED  ] 1 test"))
		FAIL_TEST("%s", result.output);
	rig_result_free(&result);
}
