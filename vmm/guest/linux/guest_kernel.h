/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's Linux kernel, found in guest memory with nothing but the registers of one stopped
 * vCPU: its address, symbols, modules, build id, unwind tables and structure layouts.
 */
#ifndef KVMSCOPE_GUEST_LINUX_GUEST_KERNEL_H
#define KVMSCOPE_GUEST_LINUX_GUEST_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/bpf_programs.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/perf_map_file.h"
#include "vmm/guest/linux/task_layout.h"
#include "vmm/guest/linux/vma_layout.h"
#include "vmm/guest/symbol_table.h"

struct guest_cgroups;
struct kernel_orc;
struct module_presence;
struct reported_kernel;
struct user_images;

/* Distinguishes a kernel from any other that may run in its place. */
struct guest_kernel_identity {
	uint64_t gva, gpa;  /* of the banner; of the text if there is no banner */
	uint64_t ticks_gpa; /* of jiffies_64; 0: unknown */
};

struct guest_kernel {
	uint64_t text_start;      /* GVA of _text, KASLR included */
	uint64_t text_end;        /* GVA of _etext */
	char release[65];         /* as uname -r; "" if not found */
	char version_banner[256]; /* linux_banner; "" if not found */
	uint8_t build_id[GUEST_BUILD_ID_MAX];
	size_t build_id_size;
	struct symbols *symbols;      /* kernel and modules; owned */
	struct symbols *per_cpu;      /* symbols with per-CPU addresses only (per_cpu.h); owned */
	struct guest_module *modules; /* owned */
	size_t module_count;
	struct module_presence *presence; /* of guest_kernel_update_presence(); owned */
	struct guest_paging paging;       /* with a CR3 that maps the whole kernel */
	struct guest_kernel_identity identity;
	struct kernel_orc *orc; /* owned; NULL: only frame pointers can be used */
	/* Layouts from BTF. */
	uint64_t module_list; /* GVA of the list head; 0: unknown */
	struct module_layout module_layout;
	struct bpf_program_layout programs;
	struct guest_task_layout tasks;
	struct guest_vma_layout vmas;
	struct perf_map_layout perf_maps;
	/* Tables that copies of the kernel share; each copy owns a reference. */
	struct user_images *images;       /* NULL if VMAS is unknown */
	struct guest_cgroups *cgroups;    /* NULL if the cgroup layout is unknown */
	struct reported_kernel *reported; /* of guest_kernel_use_report(); NULL */
};

/*
 * Finds and decodes the kernel. -ENOENT: there is none (yet), the message says why; -EFAULT or
 * -EINVAL for unreadable or invalid tables. Allocates, and may take tens of milliseconds: not on a
 * vCPU thread.
 */
int guest_kernel_find(struct guest_kernel **kernel, const struct guest_view *view,
		      const struct guest_registers *registers);
/*
 * The same with the symbols REPORTED by the guest's agent, for a kernel whose own symbols are not
 * found. Guest memory must confirm them: the banner, the exception handlers and the build id must
 * match, else -EINVAL or -EILSEQ. Does not keep REPORTED.
 */
int guest_kernel_find_reported(struct guest_kernel **kernel, const struct guest_view *view,
			       const struct guest_registers *registers,
			       const struct reported_kernel *reported);
/* NULL is a no-op. */
void guest_kernel_free(struct guest_kernel *kernel);

/* True if the kernel's list of modules can be read, which needs BTF. */
bool guest_kernel_has_module_list(const struct guest_kernel *kernel);
/*
 * Uses the REPORTED modules for KERNEL, whose own list cannot be read: guest_kernel_list_modules()
 * and guest_kernel_refresh() return those whose build id has been in memory at the reported address
 * in every call so far. A module that was missing once is noted in REPORTED and needs a newer
 * report to return. REPORTED must outlive KERNEL and its copies, or be replaced. -EILSEQ: it is of
 * another kernel. On the thread of those two functions.
 */
int guest_kernel_use_report(struct guest_kernel *kernel, struct reported_kernel *reported);
/*
 * Copies KERNEL with the modules that are loaded now. KERNEL stays valid for its readers. Not on a
 * vCPU thread.
 */
int guest_kernel_refresh(struct guest_kernel **newer, const struct guest_kernel *kernel,
			 const struct guest_view *view);
/*
 * Lists the modules that are loaded now without their symbols, which is fast. The caller frees
 * *MODULES. -EFAULT: the list broke off, as it may while the guest changes it; -ENOMEM. Not on a
 * vCPU thread.
 */
int guest_kernel_list_modules(const struct guest_kernel *kernel, const struct guest_view *view,
			      struct guest_module **modules, size_t *count);
/*
 * Appends the BPF programs that are loaded now to the *COUNT modules of *LIST; none if their layout
 * is unknown. -ENOMEM, with the list unchanged. Not on a vCPU thread.
 */
int guest_kernel_list_programs(const struct guest_kernel *kernel, const struct guest_view *view,
			       struct guest_module **list, size_t *count);

/*
 * Sets the modules and BPF programs that samples are checked against, initially the kernel's own.
 * Takes effect at once for vCPU threads that use KERNEL. -ENOMEM, or -E2BIG after too many changes,
 * with no effect. One thread at a time, not a vCPU thread.
 */
int guest_kernel_update_presence(struct guest_kernel *kernel, const struct guest_module *modules,
				 size_t count);
/* The current check, valid as long as KERNEL. Any thread. */
struct module_presence *guest_kernel_presence(const struct guest_kernel *kernel);

/*
 * Fills in all layouts that BTF describes, for KERNEL with known symbols. The caller is its only
 * user. Not on a vCPU thread.
 */
void guest_kernel_read_layouts(struct guest_kernel *kernel, const struct btf *btf);
/*
 * The same with the BTF in DATA, for a kernel without its own; a no-op if the layout of tasks is
 * known. Modules follow with guest_kernel_refresh(). -EINVAL: DATA is not BTF; -ENOENT: a part is
 * missing; -EILSEQ: it is of another kernel, as the first task in memory does not match it;
 * -ENOTSUP: KERNEL is a 32-bit one. On error KERNEL is unchanged.
 */
int guest_kernel_use_btf(struct guest_kernel *kernel, const struct guest_view *view,
			 struct span data);

/*
 * Identity: a kexec or a machine reset puts another kernel in the place of the one that was found,
 * without notice. The memory of the old one may stay intact for long, so what counts is what the
 * vCPU's own page tables map.
 */

/*
 * Fills in kernel->identity. Symbols, banner and page tables of KERNEL must be known. -EAGAIN: it
 * is not mapped.
 */
int guest_kernel_identify(struct guest_kernel *kernel, const struct guest_view *view);
/*
 * True if the vCPU with REGISTERS runs KERNEL: its page tables map the banner at the known address,
 * with the same content. Another kernel that passes would be of the same build at the same virtual
 * and physical address, and so have the same symbols. About ten memory accesses; no lock,
 * allocation or system call. Any thread.
 */
bool guest_kernel_is_running(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct guest_registers *registers);
/*
 * The time since the kernel started, in ticks of the kernel's own length (jiffies_64). Goes back
 * only if the kernel was started again at the same address. False: unknown.
 */
bool guest_kernel_ticks(const struct guest_kernel *kernel, const struct guest_view *view,
			uint64_t *ticks);
/* False if the vCPU has no paging: it is only starting, and does not run a Linux kernel yet. */
bool guest_kernel_can_run(const struct guest_registers *registers);
/* True if both are the same build at the same address. */
bool guest_kernels_equal(const struct guest_kernel *one, const struct guest_kernel *other);

#endif
