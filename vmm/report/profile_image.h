/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images, that is whatever is mapped: kernels, modules, programs, libraries;
 * and their symbols, found where perf finds them: --kallsyms and --vmlinux,
 * the build-id cache, separate debugging files, the file itself if its build
 * id is the recorded one. Without a build id there are no names: a file of
 * the same path may be another build.
 */
#ifndef KVMSCOPE_REPORT_PROFILE_IMAGE_H
#define KVMSCOPE_REPORT_PROFILE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/elf_symbols.h"

struct image_inlines;

enum profile_image_kind {
	IMAGE_KERNEL, /* the kernel's own text */
	IMAGE_MODULE,
	IMAGE_CODE, /* one function, made at run time: of a BPF program */
	IMAGE_FILE,
	IMAGE_NAMELESS, /* anonymous memory, and what can't be a file */
};

/* One machine's kernel: its text and modules are named from one table. */
struct profile_kernel {
	bool guest;
	bool tried;
	char note[512];          /* why there are no symbols; "" if there are */
	struct symbols *symbols; /* owned; NULL: none were found */
	bool has_modules;        /* the table came from kallsyms */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
	const char *reference;                  /* as in its image, or NULL */
	uint64_t reference_address;             /* as recorded; 0: not recorded */
	uint64_t moved;                         /* added to a recorded address gives the table's */
	struct profile_module_mapping *modules; /* the latest first */
	struct image_inlines *inlines;          /* owned; of its own text */
};

/* Where a module was recorded to lie. */
struct profile_module_mapping {
	const char *name;
	uint64_t start;
	struct profile_module_mapping *next;
};

struct profile_image {
	const char *path;      /* as recorded */
	const char *name;      /* as shown: "[kernel.kallsyms]", "[virtio_blk]", "libc.so.6" */
	const char *module;    /* as kallsyms has it, or NULL */
	const char *reference; /* "_text": the symbol whose recorded address is the mapping's
				  offset, or NULL */
	enum profile_image_kind kind;
	struct profile_kernel *kernel; /* of kernels and modules */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
	bool tried;
	struct symbols *symbols;       /* owned; of files */
	bool fetched;                  /* it was looked for on the guest's disks */
	struct image_inlines *inlines; /* owned; of files */
};

/* The image's fields from its recorded PATH; false without memory. */
bool profile_image_describe(struct profile_image *image, struct pool *pool, const char *path,
			    bool kernel);
/* The same for code of the kernel's that is one function called NAME. */
bool profile_image_describe_code(struct profile_image *image, struct pool *pool, const char *name);

/*
 * The symbol that ADDRESS of a mapping with START and OFFSET lies in. *OWN is
 * ADDRESS as the image's table has it, also where there is no symbol. Loads
 * the table when it is first wanted.
 */
bool profile_image_symbol(struct profile_image *image, const struct profile_options *options,
			  uint64_t start, uint64_t offset, uint64_t address, uint64_t *own,
			  struct symbol *symbol);

/* Searches the guest's disks for the image's file, once; its path goes into PATH of SYMBOL_PATH_MAX
 * bytes. */
bool profile_image_fetch(struct profile_image *image, const struct profile_options *options,
			 char *path);

/* Loads the kernel's table if that was not tried yet; its note says why it is NULL then. */
struct symbols *profile_kernel_symbols(struct profile_kernel *kernel,
				       const struct profile_options *options);

#endif
