/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's Linux kernel, found in guest memory with nothing but registers
 * of one stopped vCPU: where it lies, its symbols, modules, build id, and
 * its unwind tables.
 */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_KERNEL_H
#define KVMSCOPE_GUEST_LINUX_GUEST_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/bpf_programs.h"
#include "vmm/guest/linux/guest_cgroup.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/module_presence.h"
#include "vmm/guest/linux/perf_map_layout.h"
#include "vmm/guest/linux/task.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/guest/linux/vma_layout.h"
#include "vmm/guest/symbol_table.h"

#define GUEST_BUILD_ID_MAX    20
#define GUEST_MODULE_NAME_MAX 128

struct reported_kernel;

/* A module, or the code of a BPF program, which is checked as one is: see bpf_programs.h. */
struct guest_module {
	char name[GUEST_MODULE_NAME_MAX];
	uint64_t start; /* GVA of its text */
	uint64_t size;  /* bytes of text */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;  /* 0: none was found */
	uint64_t build_id_gva; /* where it lies in the module's memory */
	/* Of a BPF program, which has no build id: GVA of where its range and its name stand, and
	 * of its node in the list; 0 in modules. */
	uint64_t program, program_name, program_list;
};

/* What tells it from any other kernel that may run in its place: see kernel_identity.h. */
struct guest_kernel_identity {
	uint64_t gva, gpa;  /* of its banner; of its text where that was not found */
	uint64_t ticks_gpa; /* of jiffies_64; 0: not known */
};

struct guest_kernel {
	uint64_t text_start;      /* GVA of _text, KASLR included */
	uint64_t text_end;        /* GVA of _etext */
	char release[65];         /* as uname -r; "" if it was not found */
	char version_banner[256]; /* linux_banner, "" if it was not found */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;
	struct symbols *symbols; /* kernel and modules; owned */
	struct symbols
		*per_cpu; /* that are per-CPU addresses and no others: see per_cpu.h; owned */
	struct guest_module *modules; /* owned */
	size_t module_count;
	struct module_presence *presence; /* see guest_kernel_update_presence(); owned */
	struct guest_paging paging;       /* a CR3 that maps the whole kernel */
	struct guest_kernel_identity identity;
	struct kernel_orc *orc; /* owned; NULL where only frame pointers can be tried */
	/* Where it keeps things, by BTF: see kernel_btf.h. */
	uint64_t module_list; /* GVA of the head; 0: not known */
	struct module_layout module_layout;
	struct bpf_program_layout programs;
	struct guest_task_layout tasks;   /* its current ones */
	struct guest_vma_layout vmas;     /* and what they have mapped */
	struct perf_map_layout perf_maps; /* and files that they write */
	struct user_images
		*images; /* that were seen in use; NULL without VMAS; owned with its copies */
	struct guest_cgroups
		*cgroups; /* that its tasks were seen in; NULL without them; owned so, too */
	struct reported_kernel *reported; /* of guest_kernel_use_report(); NULL */
};

/*
 * Finds and decodes the kernel. -ENOENT: there is none (yet), the message
 * says why; -EFAULT and -EINVAL as the tables turned out. May take some ten
 * milliseconds and allocates: never on a vCPU thread.
 */
int guest_kernel_find(struct guest_kernel **kernel, const struct guest_view *view,
		      const struct guest_registers *registers);

/*
 * The same with the symbols that the guest's agent told, where its own are not found. Memory has to
 * confirm them: the banner and the handlers of exceptions must be where they say, and the build id
 * must be that. -EINVAL and -EILSEQ if they do not. TOLD is not kept.
 */
int guest_kernel_find_reported(struct guest_kernel **kernel, const struct guest_view *view,
			       const struct guest_registers *registers,
			       const struct reported_kernel *told);

/* Can its list of modules be read? Without BTF nothing says how. */
bool guest_kernel_has_module_list(const struct guest_kernel *kernel);

/*
 * Takes the modules of KERNEL, whose list can not be read, from TOLD: by
 * guest_kernel_list_modules() and guest_kernel_refresh() from now on, those whose build id lay
 * where TOLD says at each look: one that was not there comes back with a newer TOLD alone, which is
 * noted there. TOLD must be valid as long as either is called for KERNEL or what becomes of it.
 * -EILSEQ: it is not of this kernel. The thread of those.
 */
int guest_kernel_use_report(struct guest_kernel *kernel, struct reported_kernel *told);

/*
 * A copy of KERNEL with the modules as they are loaded now. The older one
 * stays valid for its readers. Not on a vCPU thread.
 */
int guest_kernel_refresh(struct guest_kernel **newer, const struct guest_kernel *kernel,
			 const struct guest_view *view);

/*
 * The modules that are loaded now, without their symbols: a short look. *MODULES is the caller's to
 * free. -EFAULT: the list breaks off, as it may while the guest changes it; -ENOMEM. Not on a vCPU
 * thread.
 */
int guest_kernel_list_modules(const struct guest_kernel *kernel, const struct guest_view *view,
			      struct guest_module **modules, size_t *count);

/*
 * Appends the BPF programs whose code is there now to the *COUNT modules of *LIST: none where the
 * kernel does not tell them. -ENOMEM, with the list as it was. Not on a vCPU thread.
 */
int guest_kernel_list_programs(const struct guest_kernel *kernel, const struct guest_view *view,
			       struct guest_module **list, size_t *count);

/*
 * The modules, and BPF programs, that samples are to be checked against from now on, also on vCPU
 * threads that use KERNEL at this moment: at first its own. -ENOMEM, or -E2BIG after too many
 * changes: it is as it was. One thread at a time, no vCPU thread.
 */
int guest_kernel_update_presence(struct guest_kernel *kernel, const struct guest_module *modules,
				 size_t count);

/* What to check samples against; as long-lived as KERNEL. Any thread. */
struct module_presence *guest_kernel_presence(const struct guest_kernel *kernel);

/* The same modules in the same places, build ids included? */
bool guest_modules_equal(const struct guest_module *left, size_t left_count,
			 const struct guest_module *right, size_t right_count);

/* NULL is a no-op. */
void guest_kernel_free(struct guest_kernel *kernel);

#endif
