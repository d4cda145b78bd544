/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped images (kernels, modules, programs, libraries) with their symbols and inlined functions.
 * Files are searched where perf searches: --kallsyms and --vmlinux, the build-id cache, separate
 * debug files, and the file itself, if they have the recorded build id. An image without build id
 * stays unsymbolized, because the file at its path may be another build. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_PROFILE_IMAGE_H
#define KVMSCOPE_REPORT_PROFILE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"
#include "shared/span.h"
#include "vmm/guest/symbol_table.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/dwarf_inlines.h"
#include "vmm/symbols/elf_symbols.h"

struct image_inlines;

enum profile_image_kind {
	IMAGE_KERNEL, /* the kernel's own text */
	IMAGE_MODULE,
	IMAGE_CODE, /* one kernel function generated at run time: a BPF program */
	IMAGE_FILE,
	IMAGE_NAMELESS, /* anonymous memory, and names that cannot be a file */
};

/* The kernel of one machine. Its text and modules share one symbol table. */
struct profile_kernel {
	bool guest;
	bool host;               /* of a recording in the guest's perspective */
	bool tried;              /* the symbols were searched */
	char note[512];          /* why there are no symbols; "" if there are */
	struct symbols *symbols; /* owned; NULL: not found */
	bool has_modules;        /* the table came from kallsyms */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
	const char *reference;         /* as in its image, or NULL */
	uint64_t reference_address;    /* recorded address of that symbol; 0: unknown */
	uint64_t moved;                /* table address minus recorded address */
	struct hash_table modules;     /* struct profile_module_mapping by name */
	struct image_inlines *inlines; /* owned; of its own text */
};

/* The latest recorded address of a module. */
struct profile_module_mapping {
	const char *name;
	uint64_t start;
};

/* NULL: none of that NAME. */
struct profile_module_mapping *profile_kernel_module(const struct profile_kernel *kernel,
						     const char *name);
/* Replaces the address of the module NAME, which must live as long as POOL. -ENOMEM. */
int profile_kernel_set_module(struct profile_kernel *kernel, struct pool *pool, const char *name,
			      uint64_t start);

struct profile_image {
	const char *path;      /* as recorded */
	const char *name;      /* as shown: "[kernel.kallsyms]", "[virtio_blk]", "libc.so.6" */
	const char *module;    /* as in kallsyms, or NULL */
	const char *reference; /* "_text": the mapping's offset is this symbol's address; or NULL */
	enum profile_image_kind kind;
	struct profile_kernel *kernel; /* of kernels and modules */
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
	bool tried;                    /* the symbols were searched */
	struct symbols *symbols;       /* owned; of files */
	bool fetched;                  /* it was searched on the guest's disks */
	struct image_inlines *inlines; /* owned; of files */
};

static inline struct span kernel_build_id(const struct profile_kernel *kernel)
{
	return span_of(kernel->build_id, kernel->build_id_size);
}

static inline struct span image_build_id(const struct profile_image *image)
{
	return span_of(image->build_id, image->build_id_size);
}

/* Sets the fields that follow from the recorded PATH; false without memory. */
bool profile_image_describe(struct profile_image *image, struct pool *pool, const char *path,
			    bool kernel);
/* The same for one generated kernel function NAME. */
bool profile_image_describe_code(struct profile_image *image, struct pool *pool, const char *name);

/*
 * The symbol at ADDRESS of a mapping with START and OFFSET; false: none. *OWN is ADDRESS in the
 * image's symbol table, also if there is no symbol. Loads the table on first use.
 */
bool profile_image_symbol(struct profile_image *image, const struct profile_options *options,
			  uint64_t start, uint64_t offset, uint64_t address, uint64_t *own,
			  struct symbol *symbol);

/* Copies the image's file from the guest's disks, at most once; the copy's path goes to PATH of
 * SYMBOL_PATH_MAX bytes. */
bool profile_image_fetch(struct profile_image *image, const struct profile_options *options,
			 char *path);

/* True if the file at PATH is an ELF file of that build. */
bool profile_image_is_build(const char *path, struct span build_id);
/* Finds a file of the image's build, with all functions if there is one; its path goes to PATH of
 * SYMBOL_PATH_MAX bytes. */
bool profile_image_file(const struct profile_image *image, const struct profile_options *options,
			char *path);

/* The kernel's symbol table, loaded on first use; NULL for the reason in its note. */
struct symbols *profile_kernel_symbols(struct profile_kernel *kernel,
				       const struct profile_options *options);

/*
 * Finds the kallsyms file of a boot that matches the recording: KERNEL and all its recorded modules
 * have their recorded addresses in it. perf's cache has one directory per boot (build_id_cache.h).
 * PATH has SYMBOL_PATH_MAX bytes; DIRECTORY is the buildid_dir of struct symbol_sources.
 */
bool boot_symbols_find(char *path, const struct profile_kernel *kernel, const char *directory);
/* The same in /proc, if the kernel is the running one. */
bool boot_symbols_running(char *path, const struct profile_kernel *kernel);

/*
 * Like dwarf_inlines_find(), for the address OWN that profile_image_symbol() returned. Finds and
 * opens the DWARF of the image's build on first use. 0: unknown, as for all modules.
 */
size_t image_inlines_find(struct profile_image *image, const struct profile_options *options,
			  uint64_t own, struct dwarf_function *functions);
/* True if a file with DWARF was found. */
bool image_inlines_found(const struct image_inlines *inlines);
void image_inlines_free(struct image_inlines *inlines); /* NULL is a no-op */

#endif
