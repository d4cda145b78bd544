/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's tasks if its kernel has no BTF: with a BTF file, or with the agent's reference tasks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/rig.h"
#include "tests/rig/tasks_truth.h"
#include "tests/rig/without_btf.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/symbols/btf_file.h"

/*
 * Four times: without any other BTF, with its own BTF in a file, as extracted by objcopy and in the
 * ELF file, and with another kernel's BTF. Each guest begins when its kernel is located; process
 * $run is kvmscope. Once more with the agent, when its tasks have been found.
 */
#define RECORD_WITHOUT_BTF                                                                                                  \
	"d=$PWD/" WITHOUT_BTF "; for btf in none raw elf another; do o=\"--btf $d/$btf\"; "                                 \
	"[ $btf != none ] || o=; mkdir -p $d/of-$btf; mkfifo /tmp/$btf; "                                                   \
	"HOME=$d/of-$btf build/kvmscope run --sampler kick --pmu off --timeout 90 --mem 256M -F 999 --stack-time 100ms $o " \
	"--from-line 'guest-init: up' -o $d/of-$btf/perf.data --kernel $d/kernel --initrd %s --name $btf "                  \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT                                                                \
	" kvmscope.run=read+line;tasks+2' < /tmp/$btf & run=$!; "                                                           \
	"exec 3> /tmp/$btf; until build/kvmscope ctl --name $btf status 2>&1 | grep -q Linux; do "                          \
	"kill -0 $run || break; sleep 1; done; echo >&3; wait $run || exit; done; "                                         \
	"mkdir -p $d/of-agent; HOME=$d/of-agent tests/rig/begin-when-known --said '" FOUND "' "                             \
	"build/kvmscope run --sampler kick --verbose --pmu off --agent --timeout 90 --mem 256M -F 999 --stack-time 100ms "  \
	"--from-line 'guest-init: waits' -o $d/of-agent/perf.data --kernel $d/kernel --initrd %s "                          \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT                                                                \
	" kvmscope.wait kvmscope.run=tasks+2'"
#define FOUND "found by those of its agent"

static bool record_without_btf(struct rig_result *result, const char *initrd)
{
	rig_run(result, 500, RECORD_WITHOUT_BTF, initrd, initrd);
	if (!result->status)
		return true;
	FAIL_TEST("%s\n%s", result->output, result->errors);
	rig_result_free(result);
	return false;
}

/* Without any source there are no tasks and no files. */
static void check_nothing_reported(const char *what, const char *directory)
{
	struct tasks_tally tally = { 0 };

	tasks_truth_count_samples(directory, &tally);
	tasks_truth_count_code(directory, &tally);
	printf("%s: %lu samples in the program's code, %lu of them in its image, %lu symbolized\n",
	       what, tally.code, tally.code_right, tally.known);
	CHECK(tally.code >= TASKS_ENOUGH / 10);
	CHECK_EQUAL(tally.code_right + tally.images_wrong + tally.known, 0);
}

/* The layout of tasks that was FOUND, as logged, is the one in the kernel's BTF. */
static void check_found(const char *said)
{
	static const char *const names[] = { "pid", "tgid", "comm", "mm", "stack", "tasks" };
	const char *found = strstr(said, FOUND);
	uint32_t offsets[6], table, offset;
	struct btf btf;
	uint8_t *data;
	size_t size;

	REQUIRE(found &&
		sscanf(found, FOUND ": pid %u, tgid %u, comm %u, mm %u, stack %u, tasks %u; pgd %u",
		       &offsets[0], &offsets[1], &offsets[2], &offsets[3], &offsets[4], &offsets[5],
		       &table) == 7);
	REQUIRE_EQUAL(btf_file_load(WITHOUT_BTF_RAW, &data, &size), 0);
	REQUIRE_EQUAL(btf_open(&btf, span_of(data, size)), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CHECK(btf_find_offset(&btf, "task_struct", names[i], 4, &offset));
		CHECK_EQUAL(offsets[i], offset);
	}
	CHECK(btf_find_offset(&btf, "mm_struct", "pgd", 8, &offset));
	CHECK_EQUAL(table, offset);
	btf_close(&btf);
	free(data);
}

/*
 * Without BTF the next task of the runqueue is unknown, so some samples in a context switch have no
 * task. Images come from events and are checked in other tests.
 */
static void check_tasks(const char *what, const char *directory)
{
	struct tasks_tally tally = { 0 };
	double identified;

	tasks_truth_count_samples(directory, &tally);
	identified = (double)tally.identified;
	printf("%s: the chains of %lu samples identify the task; %lu have a task, %lu a wrong one\n",
	       what, tally.identified, tally.known, tally.wrong);
	CHECK(tally.identified >= TASKS_ENOUGH / 10);
	CHECK((double)tally.known / identified >= 0.98 - 5 * sqrt(0.02 * 0.98 / identified));
	CHECK_EQUAL(tally.wrong, 0);
}

TEST(tasks, kernel_without_btf_gets_tasks_from_its_btf_file_or_the_agent_only)
{
	struct rig_result result;
	const char *initrd;

	RIG_REQUIRED();
	initrd = without_btf_make() ? debian_recording_initrd(WITHOUT_BTF_VERSION) : NULL;
	if (!initrd || !record_without_btf(&result, initrd))
		return;
	printf("%s\n", result.errors);
	check_nothing_reported("without BTF", WITHOUT_BTF "/of-none");
	check_nothing_reported("with another's BTF", WITHOUT_BTF "/of-another");
	tasks_truth_check("with its BTF in a file", WITHOUT_BTF "/of-raw");
	tasks_truth_check_cgroups("with its BTF in a file", WITHOUT_BTF "/of-raw");
	tasks_truth_check("with its BTF in an ELF file", WITHOUT_BTF "/of-elf");
	check_tasks("with the agent", WITHOUT_BTF "/of-agent");
	check_found(result.errors);
	CHECK(strstr(result.errors, "has no BTF that says where its processes are"));
	CHECK(strstr(result.errors,
		     "/another is not used: it is not of the kernel that the guest runs"));
	rig_result_free(&result);
}
