/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 32-bit kernels by the 32-bit boot protocol: Debian's for i386, and memtest86+. Kernels with PAE
 * need the Intel rig: QEMU's TCG marks entries of a nested guest's PDPT as accessed, where KVM
 * permits no such bit (load_pdptrs()), and the guest's next change of CR4 fails.
 */
#include "tests/rig/rig.h"

#define RUN       "build/kvmscope run --pmu off --console stdio --no-buildid-cache "
#define DIRECTORY "build/rig/boot32"
#define MEMTEST   "build/cache/memtest/files/boot/memtest86+ia32.bin"
#define PANICS    "Kernel panic - not syncing: VFS: Unable to mount root fs"

static void check_has(const struct rig_result *result, const char *text)
{
	if (!strstr(result->output, text))
		FAIL_TEST("no '%s' in:\n%s\n%s", text, result->output, result->errors);
}

/* Its text is at a fixed address without KASLR; other names than the kernel's own prove whose
 * they are. */
#define KALLSYMS                                                                                   \
	"mkdir -p " DIRECTORY " && export HOME=$PWD/" DIRECTORY " && "                             \
	"printf 'c1000000 T _text\\nc1000000 T _stext\\nc1000040 T text_of_32_bits\\n"             \
	"c1a00000 T _etext\\nc2000000 T _end\\n' > " DIRECTORY "/kallsyms && "

TEST(boot_32, debian_kernel_boots_and_is_profiled_by_its_kallsyms)
{
	const char *kernel = rig_kernel("6.1-686");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel)
		return;
	rig_run(&result, 280,
		KALLSYMS
		"build/kvmscope run --pmu off --mem 256M --console stdio --timeout 250 -F 99 "
		"-o " DIRECTORY "/perf.data --kallsyms " DIRECTORY "/kallsyms --kernel %s "
		"--append 'console=ttyS0 quiet panic=-1 nokaslr " QUICK_BOOT "' < /dev/null && "
		"build/kvmscope report -i " DIRECTORY "/perf.data",
		kernel);
	CHECK_EQUAL(result.status, 0);
	check_has(&result, "-686 ");
	check_has(&result, PANICS);
	check_has(&result, " text_of_32_bits ");
	rig_result_free(&result);
}

/* The kernel is found in memory, with KASLR. Its program has known callers. */
static void check_profile(enum rig_kind kind, const char *version)
{
	const char *kernel = rig_kernel(version);
	struct rig_result result;

	if (!kernel)
		return;
	rig_run_here(&result, 60,
		     "tests/rig/initrd --kernel %s --init build/rig/init-32 --modules '' "
		     "--output build/initrd/%s.cpio",
		     version, version);
	CHECK_EQUAL(result.status, 0);
	rig_result_free(&result);
	rig_run_on(
		&result, kind, 560,
		"mkdir -p " DIRECTORY " && export HOME=$PWD/" DIRECTORY " && "
		"build/kvmscope run --pmu off --mem 256M --console stdio --timeout 500 -F 99 --stack-time 100ms "
		"-o " DIRECTORY "/found.data --kernel %s --initrd build/initrd/%s.cpio "
		"--append 'console=ttyS0 panic=-1' < /dev/null && "
		"build/kvmscope export -f folded -i " DIRECTORY "/found.data",
		kernel, version);
	CHECK_EQUAL(result.status, 0);
	check_has(&result, "init_32: end");
	/* work_in_kernel(), called by run(), by _start(). The entry code's return address is at
	 * its next label. */
	check_has(&result, "vcpu 0;[unknown];[unknown];[unknown];restore_all_switch_stack;"
			   "do_int80_syscall_32;ia32_sys_call;__ia32_sys_getrandom;");
	check_has(&result, ";kernel_init;");
	rig_result_free(&result);
}

TEST(boot_32, debian_kernel_and_its_callers_are_found_in_memory)
{
	RIG_REQUIRED();
	check_profile(RIG_AMD, "6.1-686");
}

TEST(boot_32, debian_kernel_with_pae_boots_on_kvm_intel)
{
	const char *kernel = rig_kernel("6.1-686-pae");
	struct rig_result result;

	RIG_INTEL_REQUIRED();
	if (!kernel)
		return;
	rig_run_on(&result, RIG_INTEL, 500,
		   RUN "--no-profile --mem 256M --timeout 400 --kernel %s "
		       "--append 'console=ttyS0 quiet panic=-1 nokaslr " QUICK_BOOT "'",
		   kernel);
	CHECK_EQUAL(result.status, 0);
	check_has(&result, "-686-pae ");
	check_has(&result, PANICS);
	rig_result_free(&result);
}

/*
 * With PAE, in QEMU's TCG without nesting, and by attach. The panic ends in a delay. Prints the
 * number of samples in it and of all others.
 */
#define QEMU                                                                                       \
	"qemu-system-x86_64 -accel tcg -m 256 -nodefaults -no-user-config -display none "          \
	"-qmp unix:" DIRECTORY "/qmp,server=on,wait=off -serial file:" DIRECTORY "/console "
#define COUNT                                                                                      \
	"awk '/;delay_/ { known += $NF; next } { other += $NF } "                                  \
	"END { word = (known > 2 * other) ? \"most\" : \"few\"; print word, \"known:\", known, other }'"

TEST(boot_32, kernel_with_pae_is_found_by_attach)
{
	const char *kernel = rig_kernel("6.1-686-pae");
	struct rig_result result;

	RIG_REQUIRED();
	if (!kernel)
		return;
	rig_run_here(&result, 280,
		     "mkdir -p " DIRECTORY "; export HOME=$PWD/" DIRECTORY "; rm -f " DIRECTORY
		     "/qmp " DIRECTORY "/console; "
		     "timeout 270 " QEMU "-kernel %s -append 'console=ttyS0 quiet' & qemu=$!; "
		     "until grep -qs 'end Kernel panic' " DIRECTORY "/console; "
		     "do kill -0 $qemu || break; sleep 1; done; "
		     "timeout -s INT 30 build/kvmscope attach --qmp " DIRECTORY "/qmp -F 20 "
		     "-o " DIRECTORY "/pae.data; "
		     "build/kvmscope export -f folded -i " DIRECTORY "/pae.data; "
		     "build/kvmscope export -f folded -i " DIRECTORY "/pae.data | " COUNT "; "
		     "kill $qemu; wait",
		     kernel);
	check_has(&result, "\nmost known: ");
	rig_result_free(&result);
}

TEST(boot_32, memtest86_runs)
{
	struct rig_result result;
	bool fetched;

	RIG_REQUIRED();
	rig_run_here(&result, 120, "tests/rig/fetch-packages memtest memtest86+");
	fetched = !result.status;
	rig_result_free(&result);
	if (!fetched)
		SKIP("Debian's memtest86+ could not be fetched");
	/* With more memory it takes longer until it writes something. */
	rig_run(&result, 280,
		RUN "--no-profile --mem 32M --timeout 250 --kernel " MEMTEST
		    " --append 'console=ttyS0 ' < /dev/null > /tmp/console & run=$!; "
		    "until grep -q Testing /tmp/console; do kill -0 $run || break; sleep 1; done; "
		    "kill -TERM $run; wait $run; cat /tmp/console");
	check_has(&result, "Memtest86+ v");
	check_has(&result, "Testing");
	rig_result_free(&result);
}
