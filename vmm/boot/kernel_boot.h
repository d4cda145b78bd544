/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a kernel file to a machine that can start: the image, its initrd,
 * command line and tables are placed in guest RAM, and the first vCPU's
 * registers are worked out. Knows guest RAM, not KVM's ioctls.
 */
#ifndef KVMSCOPE_BOOT_KERNEL_BOOT_H
#define KVMSCOPE_BOOT_KERNEL_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/kvm/guest_ram.h"

enum boot_protocol {
	BOOT_AUTO, /* by what the file is: bzImage, PVH note, multiboot header, else ELF64 entry */
	BOOT_BZIMAGE,   /* 64-bit protocol, Documentation/arch/x86/boot.rst */
	BOOT_PVH,       /* ELF with XEN_ELFNOTE_PHYS32_ENTRY */
	BOOT_ELF64,     /* vmlinux by its 64-bit entry with a zero page */
	BOOT_MULTIBOOT, /* multiboot 1, flat ELF32 or ELF64 wrapped in it, or the a.out kludge */
};

struct boot_options {
	enum boot_protocol protocol;
	const char *kernel;       /* path */
	const char *initrd;       /* path or NULL */
	struct span initrd_front; /* put before the initrd, with one; a multiple of 4 bytes */
	const char *append;       /* command line, may be "" */
	const char *module_text;  /* multiboot's one module: an environment text, or NULL */
	unsigned int cpus;
	uint64_t rsdp; /* GPA of the ACPI RSDP, 0 without ACPI */
};

/* How the first vCPU starts; all segments flat. */
struct boot_start {
	enum boot_protocol protocol; /* the one taken */
	bool long_mode; /* 64-bit with page tables at CR3, else 32-bit protected mode without paging
			 */
	uint64_t rip, rsi, rbx, rax, rsp;
	uint64_t cr3;
	uint64_t gdt; /* GPA of the GDT, of gdt_size bytes: selector 0x10 code, 0x18 data */
	uint16_t gdt_size;
	const char *image; /* boot_options.kernel where it is an ELF with symbols of its own, else
			      NULL */
};

/*
 * Loads everything. -ENOENT and the like for files that can not be read,
 * -ENOEXEC for a file that is none of the formats or a broken one, -ENOSPC if
 * it does not fit into RAM, -E2BIG for a command line that the kernel can not
 * take, -EINVAL for options that contradict; each with its message. RAM must
 * be new (all zero). Nothing runs yet; any thread.
 */
int boot_load(const struct boot_options *options, const struct memory *memory,
	      struct boot_start *start);

#endif
