/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/debuginfod.h"

#include <dlfcn.h>
#include <elfutils/debuginfod.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/symbols/symbol_paths.h"

#define MIB (1l << 20)

/* The functions that are loaded from libdebuginfod.so.1. */
#define FUNCTIONS(use)                                                                             \
	use(debuginfod_begin) use(debuginfod_end) use(debuginfod_find_debuginfo)                   \
		use(debuginfod_find_executable) use(debuginfod_set_progressfn)

#define DECLARE(function) __typeof__(&(function)) function;

struct debuginfod {
	void *library;
	debuginfod_client *client;
	bool disabled; /* no server answered */
	FUNCTIONS(DECLARE)
};

#define LOAD(function) debuginfod->function = dlsym(debuginfod->library, #function);
#define CHECK(function)                                                                            \
	if (!debuginfod->function)                                                                 \
		missing = #function;

static bool load(struct debuginfod *debuginfod)
{
	const char *missing = NULL;

	debuginfod->library = dlopen(DEBUGINFOD_SONAME, RTLD_NOW | RTLD_LOCAL);
	if (!debuginfod->library)
		return false;
	FUNCTIONS(LOAD)
	FUNCTIONS(CHECK)
	return !missing;
}

/* Another result than 0 would abort the transfer. SIZE is 0 while it is unknown; then DONE does not
 * count bytes. */
static int show_progress(debuginfod_client *client, long done, long size)
{
	if (size > 0)
		log_progress("debuginfod: %ld of %ld MiB", done / MIB, (size + MIB - 1) / MIB);
	else
		log_progress("debuginfod: searching");
	return 0;
}

static bool choose_servers(const char *urls)
{
	const char *set;

	if (urls)
		setenv(DEBUGINFOD_URLS_ENV_VAR, urls, true);
	set = getenv(DEBUGINFOD_URLS_ENV_VAR);
	return set && *set;
}

static int begin(struct debuginfod *debuginfod)
{
	if (!load(debuginfod))
		return error_set(-ENOENT, "cannot use debuginfod: " DEBUGINFOD_SONAME
					  " is missing (Debian package libdebuginfod1)");
	debuginfod->client = debuginfod->debuginfod_begin();
	if (!debuginfod->client)
		return error_set(-ENOMEM, "no memory for debuginfod");
	debuginfod->debuginfod_set_progressfn(debuginfod->client, show_progress);
	return 0;
}

int debuginfod_open(struct debuginfod **opened, const char *urls)
{
	struct debuginfod *debuginfod;
	int error;

	if (!choose_servers(urls))
		return error_set(
			-EINVAL,
			"no debuginfod server: set DEBUGINFOD_URLS, or use --debuginfod=URL");
	debuginfod = calloc(1, sizeof(*debuginfod));
	if (!debuginfod)
		return error_set(-ENOMEM, "no memory for debuginfod");
	error = begin(debuginfod);
	if (error)
		debuginfod_close(debuginfod);
	else
		*opened = debuginfod;
	return error;
}

void debuginfod_close(struct debuginfod *debuginfod)
{
	if (!debuginfod)
		return;
	if (debuginfod->client)
		debuginfod->debuginfod_end(debuginfod->client);
	/* The library stays loaded: libcurl, which it uses, must not be unloaded. */
	free(debuginfod);
}

static int find_file(struct debuginfod *debuginfod, enum debuginfod_kind kind, const char *hex,
		     char **name)
{
	const unsigned char *id = (const unsigned char *)hex;

	if (kind == DEBUGINFOD_EXECUTABLE)
		return debuginfod->debuginfod_find_executable(debuginfod->client, id, 0, name);
	return debuginfod->debuginfod_find_debuginfo(debuginfod->client, id, 0, name);
}

bool debuginfod_find(struct debuginfod *debuginfod, enum debuginfod_kind kind, char *path,
		     struct span build_id)
{
	char hex[BUILD_ID_HEX_MAX], *name = NULL;
	bool found;
	int fd;

	if (!debuginfod || debuginfod->disabled || !build_id.size)
		return false;
	symbol_paths_hex(hex, build_id);
	fd = find_file(debuginfod, kind, hex, &name);
	log_progress("%s", "");
	if (fd >= 0)
		close(fd);
	if (fd < 0 && fd != -ENOENT && fd != -E2BIG) {
		debuginfod->disabled = true;
		log_warning("debuginfod is no longer used: %s (for build id %s)", strerror(-fd),
			    hex);
	}
	found = fd >= 0 && snprintf(path, SYMBOL_PATH_MAX, "%s", name) < SYMBOL_PATH_MAX;
	free(name);
	return found;
}
