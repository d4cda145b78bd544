/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope report --locks of a Debian kernel on two vCPUs that share one CPU: both set locks of one
 * file (guest/contend.c), so nearly all of their time one of them holds flc_lock in
 * posix_lock_inode(), or waits for it. While one waits, the other cannot have the CPU.
 */
#include <jansson.h>
#include <string.h>

#include "tests/rig/rig.h"

#define DIRECTORY "build/rig/locks"
#define RECORD                                                                                     \
	"build/kvmscope run --timeout 100 --mem 256M --cpus 2 -F 999 "                             \
	"--from-line 'contend: alone' --event cpu-clock,kvm:exit,kvm:off-cpu -o " DIRECTORY "/%s " \
	"--kernel %s --initrd build/rig/contend.cpio "                                             \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT " %s kvmscope.run=contend+2'; "

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

/* Whether ROW has the function NAME, innermost if FIRST. */
static bool row_has(const json_t *row, const char *name, bool first)
{
	const json_t *frame;
	size_t i;

	json_array_foreach(json_object_get(row, "frames"), i,
			   frame) if ((!first || !i) &&
				      !strcmp(json_string_value(frame), name)) return true;
	return false;
}

static void check_locks(const char *name)
{
	struct rig_result result;
	const json_t *row, *first;
	double one, all, of_lock = 0;
	json_t *locks;
	size_t i;

	rig_run_here(&result, 60,
		     "HOME=" DIRECTORY " build/kvmscope report --locks --json " DIRECTORY "/%s",
		     name);
	locks = json_loads(result.output, 0, NULL);
	if (!locks)
		FAIL_TEST("no locks: %s%s", result.output, result.errors);
	one = number(locks, "waited_one_ns");
	all = one + number(locks, "waited_several_ns") + number(locks, "waited_queued_ns") +
	      number(locks, "waited_none_ns");
	json_array_foreach(json_object_get(locks, "rows"), i,
			   row) if (row_has(row, "posix_lock_inode", false)) of_lock +=
		number(row, "waited_ns");
	printf("%s: waited %.3f s of %.3f s: %.3f s for one that may hold, %.3f s of these in posix_lock_inode, %.3f s for one in the queue, %.3f s for none\n",
	       name, all / 1e9, number(locks, "cpu_ns") / 1e9, one / 1e9, of_lock / 1e9,
	       number(locks, "waited_queued_ns") / 1e9, number(locks, "waited_none_ns") / 1e9);
	/* The rest is the end of the guest, when its vCPUs do other things. */
	CHECK(all > 0.15 * number(locks, "cpu_ns"));
	CHECK(number(locks, "waited_none_ns") < 0.25 * all);
	/* Without paravirtualization the next waiter in the queue is nearly always preempted, too.
	 */
	first = json_array_get(json_object_get(locks, "rows"), 0);
	if (strcmp(name, "native") != 0)
		CHECK(of_lock > 0.7 * one && row_has(first, "posix_lock_inode", true));
	json_decref(locks);
	rig_result_free(&result);
}

TEST(locks_rig, holders_without_a_cpu_have_their_code)
{
	const char *kernel = rig_kernel("6.1");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel)
		return;
	rig_run_here(&result, 100,
		     "rm -rf " DIRECTORY "; mkdir -p " DIRECTORY "; "
		     "tests/rig/initrd --output build/rig/contend.cpio build/rig/contend");
	CHECK_EQUAL(result.status, 0);
	rig_result_free(&result);
	rig_run(&result, 400, "export HOME=$PWD/" DIRECTORY "; " RECORD RECORD, "native", kernel,
		"nopvspin", "paravirtual", kernel, "");
	if (result.status)
		FAIL_TEST("no recording: %s%s", result.output, result.errors);
	printf("%s", result.output);
	check_locks("native");
	check_locks("paravirtual");
	rig_result_free(&result);
}
