/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope stat beside perf kvm stat, on a Debian guest that boots on kvm_amd. The VMM is stopped
 * while both start and end, so both see the same exits and the counts have to be equal. The guest
 * boots and then sleeps (HLT).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/rig.h"

#define COMMANDS                                                                                         \
	"build/kvmscope run --no-profile --no-control --kernel %s --initrd %s --mem 256M "               \
	"--timeout 150 --append 'console=ttyS0 " QUICK_BOOT " kvmscope.run=sleep+60' "                   \
	"< /dev/null > /tmp/console 2>&1 & "                                                             \
	"until grep -q 'Linux version' /tmp/console; do sleep 0.1; done; "                               \
	"vm=$(pgrep -n -x kvmscope); kill -STOP $vm; "                                                   \
	"perf kvm stat record -m 8192 -p $vm -o /tmp/kvm.data > /tmp/perf 2>&1 & perf=$!; "              \
	"build/kvmscope stat --pid $vm --json > build/rig/exit-stat.json & stat=$!; "                    \
	"sleep 6; kill -CONT $vm; tries=0; "                                                             \
	"until grep -q 'guest-init: up' /tmp/console || [ $((tries += 1)) = 400 ]; do sleep 0.1; done; " \
	"sleep 3; kill -STOP $vm; sleep 1; "                                                             \
	"kill -INT $stat; wait $stat; echo stat $?; kill -INT $perf; wait $perf; "                       \
	"grep -i lost /tmp/perf; "                                                                       \
	"perf kvm -i /tmp/kvm.data stat report 2>&1 | "                                                  \
	"awk '$NF == \")\" { sub(\"%%.*\", \"\"); n = $(NF - 1); sub(\" *[0-9]+ +[0-9.]+$\", \"\"); "    \
	"sub(\"^ +\", \"\"); print \"perf \" n \" \" $0 }'; kill -KILL $vm"

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

/* Returns the number of reasons in OUTPUT, lines "perf COUNT REASON", that TABLE has, too. */
static size_t compare(char *output, const json_t *table)
{
	size_t equal = 0;

	for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
		long count;
		int name = 0;

		if (sscanf(line, "perf %ld %n", &count, &name) < 1 || !name)
			continue;
		if (exits_of(table, line + name) == count)
			equal++;
		else
			FAIL_TEST("%s: kvmscope stat has %lld, perf kvm stat %ld", line + name,
				  (long long)exits_of(table, line + name), count);
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
	const json_t *table, *row;
	size_t i;

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
	CHECK(compare(result.output, table) == json_array_size(table));
	CHECK(exits_of(table, "io") && exits_of(table, "msr") && exits_of(table, "npf") &&
	      exits_of(table, "hlt") && exits_of(table, "cpuid"));
	json_decref(stat);
	rig_result_free(&result);
}
