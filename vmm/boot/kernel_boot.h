/* SPDX-License-Identifier: Apache-2.0 */
/* From a kernel file to a machine that can start: writes image, initrd, command line and tables
 * to guest RAM, and computes the first vCPU's registers. Uses guest RAM, but no KVM ioctls. */
#ifndef KVMSCOPE_BOOT_KERNEL_BOOT_H
#define KVMSCOPE_BOOT_KERNEL_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"
#include "vmm/kvm/guest_ram.h"

enum boot_protocol {
	BOOT_AUTO,      /* detected: bzImage, PVH note, multiboot header, else ELF64 entry */
	BOOT_BZIMAGE,   /* 64-bit or 32-bit protocol, Documentation/arch/x86/boot.rst */
	BOOT_PVH,       /* ELF with XEN_ELFNOTE_PHYS32_ENTRY */
	BOOT_ELF64,     /* vmlinux by its 64-bit entry, with a zero page */
	BOOT_MULTIBOOT, /* multiboot 1: flat ELF32, ELF64 wrapped in it, or the a.out kludge */
};

struct boot_options {
	enum boot_protocol protocol;
	const char *kernel;       /* path */
	const char *initrd;       /* path or NULL */
	struct span initrd_front; /* precedes the initrd, if there is one; a multiple of 4 bytes */
	const char *append;       /* command line, may be "" */
	const char *module_text;  /* multiboot's single module: an environment text, or NULL */
	unsigned int cpus;
	uint64_t rsdp; /* GPA of the ACPI RSDP, 0 without ACPI */
};

/* Start state of the first vCPU; all segments are flat. */
struct boot_start {
	enum boot_protocol protocol; /* the protocol used */
	bool long_mode; /* 64-bit mode with page tables at CR3, else 32-bit protected mode without
			   paging */
	uint64_t rip, rsi, rbx, rax, rsp;
	uint64_t cr3;
	uint64_t gdt; /* GPA of the GDT, which has gdt_size bytes: selector 0x10 is code, 0x18 data
		       */
	uint16_t gdt_size;
	const char *image; /* boot_options.kernel if it is an ELF with symbols, else NULL */
};

/* Checks, before there is a machine, that the files can be read and that the kernel's format is
 * known. Errors as for boot_load(). Any thread. */
int boot_check_kernel(const struct boot_options *options);
int boot_check_initrd(const struct boot_options *options);

/*
 * Loads everything. -ENOENT and the like for files that cannot be read, -ENOEXEC for an unknown or
 * broken format, -ENOSPC if RAM is too small, -E2BIG if the command line is too long for the
 * kernel, -EINVAL for contradicting options; each with a message. RAM must be new (all zero), and
 * no vCPU may run. Any thread.
 */
int boot_load(const struct boot_options *options, const struct memory *memory,
	      struct boot_start *start);

#endif
