/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build-id cache, where perf looks for the names of what it did not
 * record itself (perf-buildid-cache(1); tools/perf/util/build-id.c and
 * symbol.c): for a guest kernel
 *
 *	DIR/[kernel.kallsyms]/ID/kallsyms	the kernel's symbols
 *	DIR/.build-id/xx/yyyy			a link to that directory
 *	DIR/[kernel.kcore]/ID/TIME/kallsyms	the symbols of one boot, its modules' included
 *	DIR/[kernel.kcore]/ID/TIME/modules	where they lay; perf takes the directory that fits
 *	DIR/[kernel.kcore]/ID/TIME/kcore	the code itself, for perf annotate
 *
 *	DIR/[guest.user]/ID/elf			names of a program or library, as a guest told them
 *
 * The first two serve any boot of that kernel: perf moves the symbols by the
 * difference of _text. Modules do not move with it, so they stand in the
 * third only: a name must be right or not there.
 *
 * Files appear whole, by rename(), whoever else writes at the same time.
 */
#ifndef KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_H
#define KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "shared/bytes.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/symbol_table.h"

/* What one guest kernel is, as far as the cache is concerned. Nothing is owned. */
struct kernel_image {
	const uint8_t *build_id;
	size_t build_id_size; /* 1 to 20 */
	uint64_t start, end;  /* GVA of _text, and of the end of all that is mapped for it */
	uint64_t text_end;    /* GVA of _etext: the code that is there to the end */
	const struct symbols *symbols;
	const struct symbols
		*unloaded; /* of modules that are in MODULES and loaded no more; NULL: none */
	const struct guest_module *modules; /* of one name each */
	const bool *shared; /* for each: others lay in its place, so the boot does not name it;
			       NULL: of none */
	size_t module_count;
};

/* The symbols of one boot: a directory below [kernel.kcore]. Zeroed: none yet. */
struct build_id_cache_boot {
	char path[PATH_MAX]; /* "" until the first build_id_cache_add_boot() */
	bool complete;       /* it was there already, code and all */
};

/* A directory of somebody's own for names, in place of perf's. It outlives who writes there. */
struct build_id_cache_location {
	const char *directory; /* made when it is needed */
	/* May more be written now? With the message if not. The thread that writes. */
	bool (*has_room)(void *context);
	void *context;
};

/* The directory of PLACE, or build_id_cache_directory() for NULL, and the errors of that. */
int build_id_cache_open(const struct build_id_cache_location *place, char *path, size_t size);

/*
 * The directory that perf uses: buildid.dir of its configuration
 * ($PERF_CONFIG, else ~/.perfconfig over /etc/perfconfig), else $HOME/.debug.
 * -ENOENT if there is none to be used, -ENAMETOOLONG. Any thread.
 */
int build_id_cache_directory(char *path, size_t size);

/*
 * Stands in the symbols of a boot at _text's place, as a kind of symbol that
 * perf never shows. perf's host perspective falls back to the kallsyms of the
 * machine that it runs on, if that has the symbol which a mapping is anchored
 * at: it has none of this name, so the guest gets no wrong names.
 */
#define BUILD_ID_CACHE_ANCHOR "_kvmscope_text"

/*
 * Makes MOUNT/PID/proc lead to the boot: what perf's --guestmount=MOUNT wants
 * to see for the guest of that process. Errors of mkdir() and symlink().
 */
int build_id_cache_link_guest(const char *mount, int pid, const struct build_id_cache_boot *boot);

/*
 * Names come from the guest and go into lines of text and names of files:
 * only those of printable characters, without spaces, slashes and brackets,
 * are passed on. Any thread.
 */
bool build_id_cache_name_is_plain(const char *name);

/*
 * Puts the kernel's own symbols into the cache at DIRECTORY, unless they are
 * there. The errors of mkdir(), open(), write() and rename().
 */
int build_id_cache_add_kernel(const char *directory, const struct kernel_image *image);

/*
 * Puts the symbols of this boot there, modules included, or brings up to
 * date what an earlier call with the same BOOT put there. Errors as above.
 */
int build_id_cache_add_boot(const char *directory, const struct kernel_image *image,
			    struct build_id_cache_boot *boot);

/*
 * Where modules share a place, puts the symbols of all there, each under its own build id: readers
 * then go by the times of the file, and perf by nothing else, as there is no code. Errors as above.
 */
int build_id_cache_add_modules(const char *directory, const struct kernel_image *image);

/* Where build_id_cache_add_image() puts files. */
#define BUILD_ID_CACHE_IMAGES "[guest.user]"

/*
 * Puts FILE, the names of a program or library that a guest has, there under its build id, unless
 * there is something of that build. 1 if it did, 0 if not; errors as above.
 */
int build_id_cache_add_image(const char *directory, const uint8_t *build_id, size_t build_id_size,
			     const struct bytes *file);

/* The same, but in place of what build_id_cache_add_image() put there earlier, unless that has more
 * symbols.
 */
int build_id_cache_replace_image(const char *directory, const uint8_t *build_id,
				 size_t build_id_size, const struct bytes *file);

/* Takes back what build_id_cache_add_image() put there. */
void build_id_cache_remove_image(const char *directory, const uint8_t *build_id,
				 size_t build_id_size);

/* Is there a file with the symbols of that build, be it perf's own? */
bool build_id_cache_has_image(const char *directory, const uint8_t *build_id, size_t build_id_size);

/* Has it all of that build's functions, or else the build's own bytes, behind which there is
 * nothing more? Not so of those functions alone that others may call, which is what a guest's
 * memory may be left to tell.
 */
bool build_id_cache_has_whole_image(const char *directory, const uint8_t *build_id,
				    size_t build_id_size);

/* Is there a file of that build that has no .symtab? Then *OURS says whether this or another run
 * put it there. */
bool build_id_cache_image_is_stripped(const char *directory, const uint8_t *build_id,
				      size_t build_id_size, bool *ours);

/* Does the file of that build say that who told its names has no more of them, and is not older
 * than SECONDS?
 */
bool build_id_cache_image_is_exhausted(const char *directory, const uint8_t *build_id,
				       size_t build_id_size, time_t seconds);

/* Of the file that was added or put in place of another, which another one of that build does not
 * have; 0: there is none. */
uint64_t build_id_cache_image_stamp(const char *directory, const uint8_t *build_id,
				    size_t build_id_size);

/* Somebody uses what is known of that build: its time is now, by which it can be told from what
 * nobody does.
 */
void build_id_cache_touch(const char *directory, const uint8_t *build_id, size_t build_id_size);

/*
 * Adds the code of the kernel and its modules to the boot, read from guest
 * memory. Of that kernel the code of the BUILD_ID_CACHE_CODE_KEPT newest
 * boots is kept, and the names of BUILD_ID_CACHE_BOOTS_KEPT. Where modules share a place no code is
 * added: perf takes the places of modules from there, for all times. After
 * build_id_cache_add_boot(). Errors as above.
 */
#define BUILD_ID_CACHE_CODE_KEPT  8
#define BUILD_ID_CACHE_BOOTS_KEPT 32
int build_id_cache_add_code(const char *directory, const struct kernel_image *image,
			    const struct guest_view *view, const struct guest_paging *paging,
			    struct build_id_cache_boot *boot);

#endif
