/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded kernel module, or the code of a BPF program (bpf_programs.h), which is checked alike. */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_MODULE_H
#define KVMSCOPE_GUEST_LINUX_GUEST_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

#define GUEST_BUILD_ID_MAX    20
#define GUEST_MODULE_NAME_MAX 128

struct guest_module {
	char name[GUEST_MODULE_NAME_MAX];
	uint64_t start; /* GVA of its text */
	uint64_t size;  /* bytes of text */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;  /* 0: none found */
	uint64_t build_id_gva; /* of the build id in the module's memory */
	/*
	 * BPF programs, which have no build id: GVAs of the range, the name and the list node in
	 * struct bpf_ksym. 0 for modules.
	 */
	uint64_t program, program_name, program_list;
};

/* True if both lists have the same modules at the same addresses, build ids included. */
bool guest_modules_equal(const struct guest_module *left, size_t left_count,
			 const struct guest_module *right, size_t right_count);

/* Is the build id of MODULE, which has one, still in guest memory? No lock, allocation or system
 * call. */
bool guest_module_has_build_id(const struct guest_module *module, const struct guest_view *view,
			       const struct guest_paging *paging);

#endif
