/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build-id cache, in which perf finds the symbols of guests (perf-buildid-cache(1);
 * tools/perf/util/build-id.c and symbol.c):
 *
 *	DIR/[kernel.kallsyms]/ID/kallsyms	symbols of a kernel
 *	DIR/.build-id/xx/yyyy			link to that directory
 *	DIR/[kernel.kcore]/ID/TIME/kallsyms	symbols of one boot, with modules
 *	DIR/[kernel.kcore]/ID/TIME/modules	module addresses, by which perf selects the boot
 *	DIR/[kernel.kcore]/ID/TIME/kcore	the code, for perf annotate
 *	DIR/[guest.user]/ID/elf			symbols of a user-space image
 *
 * A kernel's symbols serve all its boots, because perf relocates them by _text. Modules do not move
 * with the kernel, so only the symbols of a boot have them: a symbol is right or left out.
 *
 * Files appear whole, by rename(), so any number of processes can write at the same time.
 */
#ifndef KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_H
#define KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "shared/bytes.h"
#include "shared/span.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/symbol_table.h"

/* A guest kernel as the cache needs it. Owns nothing. */
struct kernel_image {
	const uint8_t *build_id;
	size_t build_id_size; /* 1 to 20 */
	uint64_t start, end;  /* GVA of _text, and of the end of the kernel's mapping */
	uint64_t text_end;    /* GVA of _etext; init code after it has been freed */
	const struct symbols *symbols;
	const struct symbols *unloaded;     /* of modules that were unloaded; NULL: none */
	const struct guest_module *modules; /* unloaded ones included; names are unique */
	/* For each module: other modules had its addresses at other times, so the boot's symbols
	 * leave it out. NULL: none. */
	const bool *shared;
	size_t module_count;
};

/* The symbols of one boot: a directory below [kernel.kcore]. Zeroed: none yet. */
struct build_id_cache_boot {
	char path[PATH_MAX]; /* "" until the first build_id_cache_add_boot() */
	bool complete;       /* an existing boot with its code, which is not ours to change */
};

/* A private cache directory, used instead of perf's. Outlives its users. */
struct build_id_cache_location {
	const char *directory; /* created when needed */
	/* False, with an error message, if no more may be written. Called on the writing thread. */
	bool (*has_room)(void *context);
	void *context;
};

/* Copies the directory of LOCATION, or of build_id_cache_directory() for NULL, to PATH. Errors as
 * there. */
int build_id_cache_open(const struct build_id_cache_location *location, char *path, size_t size);

/*
 * The directory that perf uses: buildid.dir of its configuration ($PERF_CONFIG, else ~/.perfconfig
 * over /etc/perfconfig), else $HOME/.debug. Configuration of another user, except root, is ignored.
 * -ENOENT: there is none; -ENAMETOOLONG; -EPERM: $HOME or its .debug belongs to another user. Any
 * thread.
 */
int build_id_cache_directory(char *path, size_t size);

/*
 * A symbol in a boot's kallsyms at the address of _text, of a type that perf never shows. perf's
 * host perspective falls back to the host's kallsyms if they have the symbol that a mapping is
 * anchored at. They never have this one, so the guest gets no symbols of the host.
 */
#define BUILD_ID_CACHE_ANCHOR "_kvmscope_text"

/* Links MOUNT/PID/proc to the boot, as perf --guestmount=MOUNT needs it for the guest of process
 * PID. The errors of mkdir() and symlink(). */
int build_id_cache_link_guest(const char *mount, int pid, const struct build_id_cache_boot *boot);

/*
 * True if NAME, which comes from the guest, may become a word of a text file or a file name:
 * printable ASCII without spaces, slashes and brackets, and no leading dot. Any thread.
 */
bool build_id_cache_name_is_plain(const char *name);

/* Adds the kernel's own symbols to the cache at DIRECTORY, unless it has them. The errors of
 * mkdir(), open(), write() and rename(). */
int build_id_cache_add_kernel(const char *directory, const struct kernel_image *image);

/* Adds the symbols of this boot with its modules, or updates those of an earlier call with BOOT.
 * Errors as above. */
int build_id_cache_add_boot(const char *directory, const struct kernel_image *image,
			    struct build_id_cache_boot *boot);

/*
 * If modules shared addresses at different times, adds the symbols of each module under its own
 * build id: readers then follow the mappings of the recording, and perf has no kcore to prefer.
 * Errors as above.
 */
int build_id_cache_add_modules(const char *directory, const struct kernel_image *image);

/*
 * Adds the code of the kernel and its modules, read from guest memory, to the boot, after
 * build_id_cache_add_boot(). Keeps the code of the BUILD_ID_CACHE_CODE_KEPT newest boots of that
 * kernel, and the symbols of BUILD_ID_CACHE_BOOTS_KEPT. Adds no code if modules shared addresses:
 * perf would use its module addresses for the whole recording. Errors as above.
 */
#define BUILD_ID_CACHE_CODE_KEPT  8
#define BUILD_ID_CACHE_BOOTS_KEPT 32
int build_id_cache_add_code(const char *directory, const struct kernel_image *image,
			    const struct guest_view *view, const struct guest_paging *paging,
			    struct build_id_cache_boot *boot);

/* User-space images, by build id, in this entry of the cache. */
#define BUILD_ID_CACHE_IMAGES "[guest.user]"

/* Adds FILE, the symbols of an image, unless the cache has any of that build. 1: added, 0: not
 * needed; errors as above. */
int build_id_cache_add_image(const char *directory, struct span build_id, const struct bytes *file);
/* The same, but replaces an earlier file of ours that does not have more symbols. */
int build_id_cache_replace_image(const char *directory, struct span build_id,
				 const struct bytes *file);
/* Removes the file that build_id_cache_add_image() added. */
void build_id_cache_remove_image(const char *directory, struct span build_id);

/* True if there is a file with symbols of that build, perf's own included. */
bool build_id_cache_has_image(const char *directory, struct span build_id);

/* True if the cache has all functions of that build, or the original file. False for exported
 * functions only, which can be all that a guest's memory still has. */
bool build_id_cache_has_whole_image(const char *directory, struct span build_id);

/* True if there is a file of that build without .symtab; *OURS: kvmscope added it. */
bool build_id_cache_image_is_stripped(const char *directory, struct span build_id, bool *ours);

/* True if the file of that build is marked as all that its source has (symbol_file.h), and is
 * younger than SECONDS. */
bool build_id_cache_image_is_exhausted(const char *directory, struct span build_id, time_t seconds);

/* Identifies the file that was added or replaced last: another file of the build has another stamp.
 * 0: no file. */
uint64_t build_id_cache_image_stamp(const char *directory, struct span build_id);

/* Updates the time of the build's link, by which unused entries can be found. */
void build_id_cache_touch(const char *directory, struct span build_id);

#endif
