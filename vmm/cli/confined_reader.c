/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/confined_reader.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/pool.h"
#include "vmm/cli/confine.h"
#include "vmm/disk/sandbox_work.h"
#include "vmm/perf_data/recording_name.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"

/* Of CPU time. A hostile file may take long, but not for ever. */
#define SECONDS_MAX 3600
/* Of the machine's memory: others, such as VMs, need some. */
#define MEMORY_SHARE 0.75
#define PATHS_MAX    100
#define PROGRAMS_MAX 30   /* of a directory */
#define ENTRIES_MAX  2000 /* of a directory that are read */

struct paths {
	const char *list[PATHS_MAX + 1]; /* NULL last */
	size_t count;
};

/* Where else kernels and programs are installed, what perf's configuration is, the time zone, and
 * the running kernel's build ID. */
static const char *const system_paths[] = { "/sbin",
					    "/boot",
					    "/opt",
					    "/lib/modules",
					    "/etc/perfconfig",
					    "/etc/localtime",
					    "/proc/self",
					    "/proc/cpuinfo",
					    "/proc/meminfo",
					    "/proc/sys",
					    "/sys/kernel/notes" };

/* What libcurl and the resolver read. */
static const char *const network_paths[] = {
	"/etc/ssl",           "/etc/ca-certificates", "/etc/hosts",    "/etc/resolv.conf",
	"/etc/nsswitch.conf", "/etc/host.conf",       "/etc/gai.conf", "/etc/services",
	"/etc/passwd",        "/run/systemd/resolve", "/dev/urandom",
};

static void add(struct paths *paths, const char *path)
{
	if (path && *path && paths->count < PATHS_MAX)
		paths->list[paths->count++] = path;
}

static void add_all(struct paths *paths, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		add(paths, list[i]);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* INPUT gets the recording's name. */
static void add_input(struct paths *readable, struct paths *writable,
		      const struct profile_arguments *arguments, char input[PATH_MAX])
{
	const struct profile_options *options = &arguments->options;
	struct stat status;

	if (recording_name_find(options->input, input, &status))
		*input = '\0';
	add(readable, input);
	add(readable, arguments->archive);
	add(readable, options->kallsyms);
	add(readable, options->vmlinux);
	add(readable, options->sources.symfs);
	add(readable, options->sources.buildid_dir);
	add(writable, arguments->directory);
	/* Files of the guest's disks are stored in the cache. */
	if (options->disk_count)
		add(writable, options->sources.buildid_dir);
}

/* libdebuginfod's (debuginfod_find_debuginfo(3)); it must exist for a rule. */
static void find_download_cache(char path[PATH_MAX])
{
	const char *chosen = getenv("DEBUGINFOD_CACHE_PATH"), *base = getenv("XDG_CACHE_HOME"),
		   *home = getenv("HOME");

	*path = '\0';
	if (chosen && *chosen)
		snprintf(path, PATH_MAX, "%s", chosen);
	else if (base && *base)
		snprintf(path, PATH_MAX, "%s/debuginfod_client", base);
	else if (home && *home)
		snprintf(path, PATH_MAX, "%s/.cache/debuginfod_client", home);
	if (*path)
		cache_make_directory(path);
}

static uint64_t machine_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The private directories of the input belong to the process that fills them. */
static int give_directory(const struct profile_arguments *arguments,
			  const struct sandbox_work *work)
{
	if (!arguments || !*arguments->directory ||
	    !chown(arguments->directory, work->uid, work->gid))
		return 0;
	return error_set(-errno, "cannot change the owner of %s: %m", arguments->directory);
}

struct places {
	struct pool pool;
	struct paths readable, writable;
	char inputs[2][PATH_MAX]; /* the names that the recordings have now; "": not files */
	char cache[PATH_MAX], downloads[PATH_MAX], config[PATH_MAX];
};

static bool is_elf(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	char magic[SELFMAG];
	bool is = fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode) &&
		  read(fd, magic, SELFMAG) == SELFMAG && !memcmp(magic, ELFMAG, SELFMAG);

	if (fd >= 0)
		close(fd);
	return is;
}

/* The ELF files in DIRECTORY: a kernel or a program that is being developed. Other files there may
 * be secret. */
static void add_programs(struct places *places, const char *directory)
{
	DIR *listing = opendir(directory);
	const struct dirent *entry;
	char path[PATH_MAX];
	unsigned int programs = 0;

	for (unsigned int i = 0;
	     listing && i < ENTRIES_MAX && programs < PROGRAMS_MAX && (entry = readdir(listing));
	     i++) {
		if (snprintf(path, PATH_MAX, "%s/%s", directory, entry->d_name) >= PATH_MAX ||
		    !is_elf(path))
			continue;
		add(&places->readable, pool_string(&places->pool, path));
		programs++;
	}
	if (listing)
		closedir(listing);
}

/* Recordings name programs by their paths. */
static void find_programs(struct places *places)
{
	char recording[PATH_MAX];

	add_programs(places, ".");
	if (*places->inputs[0]) {
		snprintf(recording, PATH_MAX, "%s", places->inputs[0]);
		add_programs(places, dirname(recording));
	}
}

static void find_places(struct places *places, const struct profile_arguments *arguments,
			const struct profile_arguments *other, const char *output)
{
	const struct profile_options *options = &arguments->options;
	const char *home = getenv("HOME");

	add_all(&places->readable, system_paths, COUNT(system_paths));
	add_input(&places->readable, &places->writable, arguments, places->inputs[0]);
	if (other)
		add_input(&places->readable, &places->writable, other, places->inputs[1]);
	add(&places->writable, output);
	add(&places->readable, getenv("PERF_CONFIG"));
	if (home && snprintf(places->config, PATH_MAX, "%s/.perfconfig", home) < PATH_MAX)
		add(&places->readable, places->config);
	if (!build_id_cache_directory(places->cache, PATH_MAX)) {
		if (options->disk_count)
			cache_make_directory(places->cache);
		add(options->disk_count ? &places->writable : &places->readable, places->cache);
	}
	find_programs(places);
	if (!options->sources.debuginfod)
		return;
	add_all(&places->readable, network_paths, COUNT(network_paths));
	find_download_cache(places->downloads);
	add(&places->writable, places->downloads);
}

int confined_read(const struct profile_arguments *arguments, const struct profile_arguments *other,
		  const char *output, const int *file, int (*function)(void *context),
		  void *context)
{
	const char *input = arguments->options.input;
	bool standard = !strcmp(input, "-");
	struct places places = { .cache = "" };
	struct sandbox_work work = { .input = standard ? "standard input" : input,
				     .readable = places.readable.list,
				     .writable = places.writable.list,
				     .reads_any = true,
				     .files = file,
				     .file_count = file != NULL,
				     .network = arguments->options.sources.debuginfod,
				     .seconds = SECONDS_MAX,
				     .memory_max =
					     (uint64_t)((double)machine_memory() * MEMORY_SHARE) };
	struct stat status;
	int error;

	if (geteuid() || confine_is_active())
		return function(context);
	find_places(&places, arguments, other, output);
	/* The owner may be unable to write to the places that the options select. */
	work.writes_any = output || places.downloads[0] || arguments->options.disk_count;
	if (!standard && !work.writes_any && !stat(places.inputs[0], &status)) {
		work.uid = status.st_uid;
		work.gid = status.st_gid;
	}
	error = give_directory(arguments, &work);
	if (!error)
		error = give_directory(other, &work);
	if (!error)
		error = sandbox_work_run(&work, function, context);
	pool_free(&places.pool);
	return error;
}
