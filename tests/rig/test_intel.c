/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The results of the rig with kvm_intel, and Debian's kernel profiled on VMX and EPT: in one start.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

/* Below build/, so that the build-id cache is copied out together with the profile. */
#define HOME "build/rig/intel-home"
#define DATA "build/rig/intel.data"

/* The profile's kernel samples as perf shows them. */
struct kernel_samples {
	unsigned int all, named;
	unsigned int of_calls; /* in a function that only runs for the workload's system calls */
	unsigned int to_entry; /* those with a chain that contains the system call entry */
};

struct sample_lines {
	unsigned int depth;
	bool of_call, to_entry;
};

static void read_frame(struct kernel_samples *samples, struct sample_lines *sample,
		       unsigned long long address, const char *symbol)
{
	if (!sample->depth++ && address >> 63) {
		samples->all++;
		samples->named += strcmp(symbol, "[unknown]") != 0;
		sample->of_call =
			!strcmp(symbol, "chacha_permute") || !strcmp(symbol, "clear_user_rep_good");
		samples->of_calls += sample->of_call;
	}
	if (sample->of_call && !sample->to_entry && !strncmp(symbol, "entry_SYSCALL_64", 16)) {
		sample->to_entry = true;
		samples->to_entry++;
	}
}

/*
 * TEXT is the output of perf script -F ip,sym: a line "ADDRESS SYMBOL" for each frame, an empty
 * line after each sample.
 */
static struct kernel_samples read_script(char *text)
{
	struct kernel_samples samples = { 0 };
	struct sample_lines sample = { 0 };
	unsigned long long address;
	char symbol[512], *line;

	while ((line = strsep(&text, "\n"))) {
		if (sscanf(line, " %llx %511s", &address, symbol) == 2)
			read_frame(&samples, &sample, address, symbol);
		else
			sample = (struct sample_lines){ 0 };
	}
	return samples;
}

static void check_profile(void)
{
	struct kernel_samples samples;
	struct rig_result perf;

	rig_run_here(&perf, 300, "HOME=$PWD/" HOME " perf script -i " DATA " -F ip,sym");
	CHECK_EQUAL(perf.status, 0);
	samples = read_script(perf.output);
	printf("%u kernel samples, %u of them symbolized; %u in the workload's system calls, %u with a chain to the entry\n",
	       samples.all, samples.named, samples.of_calls, samples.to_entry);
	CHECK(samples.all > 1000);
	CHECK(samples.named >= 0.97 * samples.all);
	CHECK(samples.of_calls > 300);
	/*
	 * The samples of the first seconds have no chains here: this rig's single slow CPU is still
	 * locating the kernel.
	 */
	CHECK(samples.to_entry > 100);
	rig_result_free(&perf);
}

#define STATUS 37

static void check_rig(const struct rig_result *result)
{
	CHECK_EQUAL(result->status, STATUS);
	CHECK(!strncmp(result->output, "Y\n", 2));
	CHECK(!strncmp(result->errors, "to errors\n", strlen("to errors\n")));
}

TEST(intel, debian_kernel_boots_and_is_profiled_on_kvm_intel_with_ept)
{
	const char *kernel = rig_kernel("6.1"), *initrd = rig_initrd("6.1");
	struct rig_result result;

	RIG_INTEL_REQUIRED();
	REQUIRE(kernel && initrd);
	/* kcore is for annotation only, and too large to copy out. */
	rig_run_on(
		&result, RIG_INTEL, 500,
		"cat /sys/module/kvm_intel/parameters/ept; echo to errors >&2; "
		"export HOME=$PWD/" HOME "; mkdir -p $HOME; "
		"build/kvmscope run --pmu off --timeout 300 --mem 256M -F 499 --stack-time 100ms -o " DATA
		" --kernel %s --initrd %s "
		"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		" kvmscope.run=workload+shares+8'; "
		"status=$?; rm -rf $HOME/.debug/*kcore*; [ $status != 0 ] || status=%d; exit $status",
		kernel, initrd, STATUS);
	check_rig(&result);
	if (strstr(result.output, "workload: truth process=workload"))
		check_profile();
	else
		FAIL_TEST("Debian's kernel did not run the workload on kvm_intel:\n%s\n%s",
			  result.output, result.errors);
	rig_result_free(&result);
}
