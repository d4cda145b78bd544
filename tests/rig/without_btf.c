/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/without_btf.h"

#include "tests/rig/rig.h"

#define MAKE                                                                                                \
	"rm -rf " WITHOUT_BTF "; mkdir -p " WITHOUT_BTF                                                     \
	" && tests/rig/extract-vmlinux %s > " WITHOUT_BTF_ELF                                               \
	" && tests/rig/extract-vmlinux %s > " WITHOUT_BTF_ANOTHER                                           \
	" && objcopy --dump-section .BTF=" WITHOUT_BTF_RAW " " WITHOUT_BTF_ELF " " WITHOUT_BTF              \
	"/copy && "                                                                                         \
	"rm " WITHOUT_BTF "/copy && "                                                                       \
	"set -- $(readelf -SW " WITHOUT_BTF_ELF " | "                                                       \
	"sed -n 's/.* \\.BTF *PROGBITS *[0-9a-f]* \\([0-9a-f]*\\) \\([0-9a-f]*\\) .*/0x\\1 0x\\2/p') && "   \
	"cp " WITHOUT_BTF_ELF " " WITHOUT_BTF_KERNEL " && dd if=/dev/zero of=" WITHOUT_BTF_KERNEL           \
	" conv=notrunc bs=64K oflag=seek_bytes iflag=count_bytes seek=$(($1)) count=$(($2)) status=none"    \
	" && export LC_ALL=C && "                                                                           \
	"sed 's/\\x00[tbm]\\(ask_struct\\|pf_ksym\\|od_kallsyms\\)\\x00/\\x00x\\1\\x00/g' " WITHOUT_BTF_ELF \
	" > " WITHOUT_BTF_NAMES                                                                             \
	" && ! grep -aqP '\\x00(task_struct|bpf_ksym|mod_kallsyms)\\x00' " WITHOUT_BTF_NAMES

static bool make_of(const char *kernel, const char *another)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 300, MAKE, kernel, another);
	made = !result.status;
	if (!made)
		FAIL_TEST("the kernel without BTF could not be made: %s%s", result.output,
			  result.errors);
	rig_result_free(&result);
	return made;
}

bool without_btf_make(void)
{
	static bool made;
	const char *kernel = rig_kernel(WITHOUT_BTF_VERSION), *another = rig_kernel("5.10");

	if (!made)
		made = kernel && another && make_of(kernel, another);
	return made;
}
