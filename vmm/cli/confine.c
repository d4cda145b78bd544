/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/confine.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/landlock.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_start.h"
#include "vmm/attach/rights.h"
#include "vmm/cli/command.h"
#include "vmm/cli/confine_calls.h"
#include "vmm/cli/run_bpf.h"
#include "vmm/control/run_directory.h"
#include "vmm/devices/terminal.h"
#include "vmm/perf_data/output_path.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Landlock's second version, which can allow renaming between directories (REFER). */
#define VERSION_MIN 2
#define READ        (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ALL         ((LANDLOCK_ACCESS_FS_REFER << 1) - 1)
#define OF_FILES                                                                                   \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE)

/* struct landlock_ruleset_attr and its constants in Linux 6.12 (version 6) and 6.15, newer than the
 * headers of Debian 12 (linux/landlock.h). */
struct ruleset {
	uint64_t handled_access_fs, handled_access_net, scoped;
};
#define VERSION_SCOPE        6
#define SCOPE_SIGNAL         (1ull << 1)
#define QUERY_ERRATA         (1u << 1)
#define ERRATUM_SAME_PROCESS (1 << 1) /* fixed: the threads of a process may signal each other */

/* Set before the first thread starts, constant afterwards. */
static struct {
	bool active;
	int rules; /* Landlock's; -1: none */
	const struct run_options *options;
} confinement = { .rules = -1 };

/* What libraries and the readers of symbols read, and the process itself. */
static const char *const readable[] = {
	"/usr",           "/lib",       "/lib64",        "/etc/ld.so.cache", "/etc/perfconfig",
	"/etc/localtime", "/proc/self", "/proc/cpuinfo", "/proc/meminfo",    "/proc/stat",
	"/proc/sys",      "/sys"
};
static const char *const writable[] = { "/dev/kvm", "/dev/null", "/dev/tty" };

/* A file that does not exist needs no rule. */
static int allow(const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access };
	struct stat status;
	int error = 0;

	rule.parent_fd = path ? open(path, O_PATH | O_CLOEXEC) : -1;
	if (rule.parent_fd < 0)
		return 0;
	if (!fstat(rule.parent_fd, &status) && !S_ISDIR(status.st_mode))
		rule.allowed_access &= OF_FILES;
	/* EBADFD: a pipe of the shell (/dev/fd/63), which needs no rule */
	if (syscall(SYS_landlock_add_rule, confinement.rules, LANDLOCK_RULE_PATH_BENEATH, &rule,
		    0) &&
	    errno != EBADFD)
		error = error_set(-errno, "cannot allow %s by Landlock: %m", path);
	close(rule.parent_fd);
	return error;
}

static void name_directory(const char *path, char directory[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (slash)
		snprintf(directory, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path),
			 path);
	else
		strcpy(directory, ".");
}

/* The directory of PATH, or PATH itself if it is a device or a pipe. */
static int allow_beside(const char *path, uint64_t access)
{
	char directory[PATH_MAX];
	struct stat status;

	if (!path || !strcmp(path, "-"))
		return 0;
	if (!stat(path, &status) && !S_ISREG(status.st_mode))
		return allow(path, access);
	name_directory(path, directory);
	if (access == READ && !strcmp(directory, "/")) /* /vmlinuz: not everything */
		return allow(path, access);
	return allow(directory, access);
}

/* A link, and the file itself, may be in different directories. Debug files are beside both. */
static int allow_kernel(const char *path)
{
	char *real = path ? realpath(path, NULL) : NULL;
	int error = allow_beside(path, READ);

	if (!error)
		error = allow_beside(real, READ);
	free(real);
	return error;
}

static int allow_symbols(const struct run_options *options)
{
	int error = allow_kernel(options->record.vmlinux);

	if (!error)
		error = allow_kernel(options->boot.kernel);
	if (!error)
		error = allow(options->boot.initrd, READ);
	if (!error)
		error = allow(options->record.kallsyms, READ);
	if (!error)
		error = allow(options->record.btf, READ);
	return error ? error : allow(options->symfs, READ);
}

/* The directory of the file that is written, and of the link that names it. */
static int allow_output(const char *path)
{
	char target[PATH_MAX];
	int error;

	if (output_path_is_standard(path)) /* /dev/stdout: not all of /dev */
		return 0;
	error = allow_beside(path, ALL);
	if (!error && output_path_is_file(path, target))
		error = allow_beside(target, ALL);
	return error;
}

/* The cache directory exists from now on, as a rule needs it, but no home is made for a user. */
static int allow_cache(const struct run_options *options)
{
	const char *home = getenv("HOME");
	char path[PATH_MAX];
	int error = 0;

	if (options->record.buildid_cache && !build_id_cache_directory(path, sizeof(path))) {
		if (!home || !access(home, F_OK))
			cache_make_directory(path); /* or the collector says why there is none */
		error = allow(path, ALL);
	}
	if (!error)
		error = allow(getenv("PERF_CONFIG"), READ);
	if (error || !home)
		return error;
	snprintf(path, sizeof(path), "%s/.perfconfig", home);
	return allow(path, READ);
}

/* Sockets are removed at the end. */
static int allow_sockets(const struct run_options *options)
{
	char directory[PATH_MAX];
	int error = control_directory(directory, sizeof(directory));

	error = error ? error : allow(directory, ALL);
	if (!error)
		error = allow_beside(options->control_path, ALL);
	return error ? error : allow_beside(options->agent_socket, ALL);
}

static int allow_files(const struct run_options *options)
{
	int error = 0;

	for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]) && !error; i++)
		error = allow(readable[i], READ);
	for (size_t i = 0; i < sizeof(writable) / sizeof(writable[0]) && !error; i++)
		error = allow(writable[i], ALL);
	for (size_t i = 0; i < options->disk_count && !error; i++)
		error = allow(options->disks[i].path, options->disks[i].read_only ? READ : ALL);
	if (!error && options->profile)
		error = allow_output(options->record.output);
	if (!error)
		error = allow_symbols(options);
	if (!error)
		error = allow_cache(options);
	return error ? error : allow_sockets(options);
}

static int query_landlock(unsigned int flags)
{
	return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, flags);
}

/* Signals to other processes, also by F_SETOWN; threads of this one have rules of their own. */
static bool can_scope_signals(int version)
{
	return version >= VERSION_SCOPE && query_landlock(QUERY_ERRATA) & ERRATUM_SAME_PROCESS;
}

static void report_unconfined_files(void)
{
	static const char text[] =
		"files are not confined: Linux 5.19 with Landlock is needed for that";

	if (geteuid())
		log_debug("%s", text);
	else
		log_warning("%s; for an untrusted guest use --user", text);
}

static int create_rules(const struct run_options *options)
{
	struct ruleset all = { .handled_access_fs = ALL };
	int version = query_landlock(LANDLOCK_CREATE_RULESET_VERSION);

	if (version < VERSION_MIN) {
		report_unconfined_files();
		return 0;
	}
	if (can_scope_signals(version))
		all.scoped = SCOPE_SIGNAL;
	confinement.rules =
		(int)syscall(SYS_landlock_create_ruleset, &all,
			     all.scoped ? sizeof(all) : sizeof(all.handled_access_fs), 0);
	if (confinement.rules < 0)
		return error_set(-errno, "cannot create rules of Landlock: %m");
	fcntl(confinement.rules, F_SETFD, FD_CLOEXEC);
	return allow_files(options);
}

/* What attach needs, but a VM of our own does not. */
static int drop_rights_of_attach(bool bpf)
{
	if (capng_get_caps_process())
		return error_set(-EPERM, "cannot read the capabilities");
	capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_SYS_PTRACE);
	if (!bpf)
		capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_BPF);
	return capng_apply(CAPNG_SELECT_CAPS) ? error_set(-EPERM, "cannot drop capabilities") : 0;
}

/* Nothing regains them by executing a program, either. */
static void drop_bounding_set(void)
{
	for (int i = 0; i <= CAP_LAST_CAP; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* EPERM: this user has none */
}

static int drop_rights(void)
{
	const struct run_options *options = confinement.options;
	const struct rights_file files[] = {
		{ .path = strcmp(options->record.output, "-") ? options->record.output : NULL,
		  .mode = W_OK },
		{ .path = options->record.buildid_cache ? getenv("HOME") : NULL, .mode = W_OK },
		{ .path = options->record.vmlinux, .mode = R_OK },
		{ .path = options->boot.kernel, .mode = R_OK },
		{ .path = options->boot.initrd, .mode = R_OK },
	};
	int error;

	drop_bounding_set();
	/* Another user has no need of CAP_DAC_OVERRIDE. */
	error = rights_keep(files, options->user ? 0 : sizeof(files) / sizeof(files[0]), false);
	return error ? error : drop_rights_of_attach(run_bpf_is_tried(options) || options->stat);
}

/* Started by a thread that is confined: the rights and files of that thread apply. */
static bool has_confined_parent(const char *thread)
{
	return !strncmp(thread, "vCPU ", 5);
}

static int confine(const char *thread)
{
	int error;

	if (has_confined_parent(thread))
		return confine_calls(thread);
	error = drop_rights();
	/* Before Linux 5.8, rights_keep() has not done this. */
	if (!error && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		error = error_set(-errno, "NO_NEW_PRIVS: %m");
	if (!error && confinement.rules >= 0 &&
	    syscall(SYS_landlock_restrict_self, confinement.rules, 0))
		error = error_set(-errno, "Landlock: %m");
	return error ? error : confine_calls(thread);
}

static void confine_thread(const char *name)
{
	if (!confine(name))
		return;
	log_error("cannot confine the thread %s: %s; --no-sandbox runs without", name,
		  error_message());
	terminal_restore();
	_exit(EXIT_FAILED);
}

/* The capabilities open what the new user may not open, such as /dev/kvm; each thread drops them
 * later. */
static int keep_capabilities(void)
{
	if (capng_get_caps_process())
		return -EPERM;
	for (unsigned int i = 0; i <= CAP_LAST_CAP; i++)
		if (capng_have_capability(CAPNG_PERMITTED, i))
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE, i);
	return capng_apply(CAPNG_SELECT_CAPS) ? -EPERM : 0;
}

static int become_user(const char *name)
{
	const struct passwd *user = getpwnam(name);

	if (!user || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || initgroups(name, user->pw_gid) ||
	    setresgid(user->pw_gid, user->pw_gid, user->pw_gid) ||
	    setresuid(user->pw_uid, user->pw_uid, user->pw_uid) || keep_capabilities())
		return error_set(-EPERM, "--user %s: cannot change the user: %m", name);
	/* Otherwise /proc/self would still be root's. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return setenv("HOME", user->pw_dir, 1) ? error_set(-ENOMEM, "no memory for $HOME") : 0;
}

/* As root: a directory in /run that belonged to --user would be of no use to root's runs. */
static void create_control_directory(const struct run_options *options)
{
	char path[PATH_MAX];

	if (options->user)
		unsetenv("XDG_RUNTIME_DIR");
	if (options->control && !options->control_path && !control_directory(path, sizeof(path)))
		mkdir(path, S_IRWXU); /* errors: control_socket_open() reports them */
}

int confine_start(const struct run_options *options)
{
	int error;

	create_control_directory(options);
	error = options->user ? become_user(options->user) : 0;
	if (error)
		return error;
	if (!options->sandbox)
		log_info("--no-sandbox: a guest that takes over a thread has all rights of this "
			 "process");
	if (SANITIZED || !options->sandbox)
		return 0;
	confinement.options = options;
	tzset(); /* the clock's registers and the log need the file */
	error = create_rules(options);
	if (!error)
		error = confine_calls_prepare(run_bpf_is_tried(options) || options->stat);
	if (error)
		return error;
	confinement.active = true;
	thread_start_with(confine_thread);
	return 0;
}

/* The real directory of PATH. NULL: there is none. */
static char *directory_of(const char *path)
{
	char directory[PATH_MAX];

	name_directory(path, directory);
	return realpath(directory, NULL);
}

static bool is_below(const char *path, const char *directory)
{
	size_t length = directory[1] ? strlen(directory) : 0; /* "/" */

	return !strncmp(path, directory, length) && (!path[length] || path[length] == '/');
}

int confine_check_output(const char *path)
{
	char *allowed, *wanted, target[PATH_MAX];
	int error = 0;

	if (confinement.rules < 0 || !output_path_is_file(path, target))
		return 0;
	allowed = directory_of(confinement.options->record.output);
	wanted = directory_of(target);
	if (allowed && wanted && !is_below(wanted, allowed))
		error = error_set(-EACCES,
				  "the sandbox of this run permits files below %s only, not %s; "
				  "kvmscope run --no-sandbox has none",
				  allowed, path);
	free(allowed);
	free(wanted);
	return error;
}

int confine_main(void)
{
	return confinement.active ? confine("main") : 0;
}

bool confine_is_active(void)
{
	return confinement.active;
}
