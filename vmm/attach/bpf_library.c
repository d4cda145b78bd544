// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/bpf_library.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"

static int print(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char text[512];

	if (level != LIBBPF_WARN)
		return 0;
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\n")] = '\0';
	log_debug("%s", text);
	return 0;
}

struct btf *bpf_library_types(void)
{
	libbpf_set_print(print);
	return btf__load_vmlinux_btf();
}

void bpf_library_free_types(struct btf *kernel)
{
	btf__free(kernel);
	malloc_trim(0);
}

int bpf_library_check_iterators(const struct btf *kernel)
{
	bool of_one =
		kernel && btf__find_by_name_kind(kernel, "bpf_iter_task_type", BTF_KIND_ENUM) > 0;

	return of_one ? 0
		      : error_set(
				-ENOTSUP,
				"this kernel's BPF can not look at one process alone: it needs Linux 6.1 and BTF");
}
