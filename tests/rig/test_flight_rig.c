/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder with Debian's kernel: each kind of crash leaves a file with the activity
 * before it, and perf symbolizes it. A reboot by the keyboard controller is a regular end of the
 * run; one by triple fault cannot be distinguished from a crash.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "tests/unit/run_command.h"

#define FOLDER "build/rig/flight"
/* A reboot takes some ms; with a line on the slow console for each device, some tens. */
#define OFTEN        "-F 997"
#define SAY_SHUTDOWN "echo+1>/sys/module/kernel/parameters/initcall_debug;dmesg+-n+8"

struct end {
	const char *name, *append;
	int status;           /* of kvmscope run */
	const char *trigger;  /* as in the recording */
	const char *function; /* of the kernel, on its path to the crash */
	const char *options;  /* of kvmscope run */
	const char *image;    /* in user space, with the guest agent; NULL: without */
};

static void run_to(const struct end *end, struct rig_result *result)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf " FOLDER "/%s; mkdir -p " FOLDER "/%s",
		 end->name, end->name);
	CHECK(command_succeeds(command));
	rig_run(result, 280,
		"HOME=$PWD/" FOLDER
		"/%s build/kvmscope run --sampler kick --pmu off --timeout 250 --mem 256M --flight 5s %s "
		"-o " FOLDER
		"/%s/perf.data --kernel %s --initrd %s --append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" %s' "
		"< /dev/null",
		end->name, end->options, end->name, rig_kernel("6.1"), rig_initrd("6.1"),
		end->append);
}

static void check_text(const char *what, const char *text, const char *wanted)
{
	if (!strstr(text, wanted))
		FAIL_TEST("%s: no '%s' in:\n%.4000s", what, wanted, text);
}

/* The output of COMMAND, run with the recording as perf.data and its build-id cache. */
static char *output_of(const struct end *end, const char *command)
{
	int status;
	char *output = command_output(&status,
				      "PATH=$PWD/build:$PATH; cd " FOLDER
				      "/%s && HOME=$PWD && export HOME && %s",
				      end->name, command);

	CHECK_EQUAL(status, 0);
	return output;
}

static void check_report(const struct end *end)
{
	char *report = output_of(end, "kvmscope report");
	char before[64];

	/* "5.0 s", or on a fast machine "everything" */
	snprintf(before, sizeof(before), " before %s", end->trigger);
	check_text(end->name, report, "# Guest    Linux 6.1.");
	check_text(end->name, report, before);
	check_text(end->name, report, "[kernel.kallsyms]");
	if (end->image)
		check_text(end->name, report, end->image);
	free(report);
}

/* perf symbolizes kernel functions; those of the last 300 ms are on the path to the crash. */
static void check_perf(const struct end *end)
{
	char *text = output_of(end, "perf report --stdio --sort symbol 2> /dev/null");

	check_text(end->name, text, "[k] ");
	free(text);
	text = output_of(end, "perf script -F ip,sym --time $(perf script -F time 2> /dev/null | "
			      "awk 'END { printf \"%.6f,\", $1 - 0.3 }') 2> /dev/null");
	check_text(end->name, text, end->function);
	free(text);
}

static void check_end(const struct end *end)
{
	struct rig_result result;

	run_to(end, &result);
	CHECK_EQUAL(result.status, end->status);
	check_report(end);
	check_perf(end);
	rig_result_free(&result);
}

TEST(flight_recorder, debian_panic_writes_the_last_seconds)
{
	RIG_REQUIRED();
	check_end(&(struct end){ "panic", "kvmscope.end=panic", 0, "guest panic",
				 "sysrq_handle_crash", "", NULL });
}

/* Programs have their images as well: the file has their mappings. */
TEST(flight_recorder, debian_reset_writes_the_last_seconds)
{
	RIG_REQUIRED();
	check_end(&(struct end){
		"reset",
		"kvmscope.run=i=0;while+[+$i+-lt+20000+];do+i=$((i+1));done;" SAY_SHUTDOWN
		" reboot=k kvmscope.end=reboot",
		0, "guest reset", "__do_sys_reboot", OFTEN " --agent", "  busybox\n" });
}

TEST(flight_recorder, debian_triple_fault_writes_the_last_seconds)
{
	RIG_REQUIRED();
	check_end(&(struct end){ "fault",
				 "kvmscope.run=" SAY_SHUTDOWN " reboot=t kvmscope.end=reboot", 3,
				 "triple fault", "__do_sys_reboot", OFTEN, NULL });
}
