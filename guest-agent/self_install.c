/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/self_install.h"
#include "shared/unconst.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/usr/local/sbin/kvmscope-agent"

#define SYSTEMD_UNIT "/etc/systemd/system/kvmscope-agent.service"
#define SYSTEMD_LINK "/etc/systemd/system/multi-user.target.wants/kvmscope-agent.service"
#define OPENRC_FILE  "/etc/init.d/kvmscope-agent"
#define OPENRC_LINK  "/etc/runlevels/default/kvmscope-agent"
#define OPENRC_RUNS  "/run/openrc"
#define INITTAB      "/etc/inittab"
#define INITTAB_MAX  65536u
#define INITTAB_LINE "::respawn:" PROGRAM "\n"

static const char systemd_unit[] = "[Unit]\n"
				   "Description=kvmscope's guest agent\n"
				   "Documentation=man:kvmscope-agent(1)\n"
				   "ConditionVirtualization=vm\n"
				   "StartLimitIntervalSec=0\n"
				   "\n"
				   "[Service]\n"
				   "ExecStart=" PROGRAM "\n"
				   "Restart=always\n"
				   "RestartSec=1\n"
				   "\n"
				   "[Install]\n"
				   "WantedBy=multi-user.target\n";

static const char openrc_file[] = "#!/sbin/openrc-run\n"
				  "description=\"kvmscope's guest agent\"\n"
				  "supervisor=supervise-daemon\n"
				  "respawn_delay=1\n"
				  "respawn_max=0\n"
				  "command=" PROGRAM "\n";

static const char *root = "";

static int fail(const char *what, const char *path)
{
	fprintf(stderr, "kvmscope-agent: cannot %s %s%s: %s\n", what, root, path, strerror(errno));
	return 1;
}

/* PATH below --root. */
static const char *below_root(const char *path, char whole[PATH_MAX])
{
	if (snprintf(whole, PATH_MAX, "%s%s", root, path) >= PATH_MAX)
		whole[0] = '\0'; /* does not exist */
	return whole;
}

static bool exists(const char *path)
{
	char whole[PATH_MAX];

	return !access(below_root(path, whole), F_OK);
}

/* mkdir -p of PATH's directory. */
static void make_directories(const char *path)
{
	char whole[PATH_MAX];

	below_root(path, whole);
	for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(whole, 0755);
		*slash = '/';
	}
}

static bool copy_bytes(int from, int to)
{
	char bytes[16384];
	ssize_t size;

	while ((size = read(from, bytes, sizeof(bytes))) > 0)
		if (write(to, bytes, (size_t)size) != size)
			return false;
	return !size;
}

/* Writes TEXT, or the content of FROM, atomically by rename(2). */
static int write_file(const char *path, mode_t mode, const char *text, int from)
{
	char whole[PATH_MAX], temporary[PATH_MAX + 8];
	bool written;
	int fd;

	make_directories(path);
	snprintf(temporary, sizeof(temporary), "%s.new", below_root(path, whole));
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return fail("write", path);
	written = text ? write(fd, text, strlen(text)) == (ssize_t)strlen(text)
		       : copy_bytes(from, fd);
	written = !fchmod(fd, mode) && written;
	if (close(fd) || !written || rename(temporary, whole)) {
		fail("write", path);
		unlink(temporary);
		return 1;
	}
	printf("wrote %s\n", whole);
	return 0;
}

static int install_program(void)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), status;

	if (from < 0) {
		fprintf(stderr, "kvmscope-agent: cannot read itself through /proc/self/exe: %s\n",
			strerror(errno));
		return 1;
	}
	status = write_file(PROGRAM, 0755, NULL, from);
	close(from);
	return status;
}

static int make_link(const char *target, const char *path)
{
	char whole[PATH_MAX];

	make_directories(path);
	if (symlink(target, below_root(path, whole)) && errno != EEXIST)
		return fail("make the link", path);
	return 0;
}

/* Runs a command, but not with --root. */
static void run(const char *const *words)
{
	pid_t child = *root ? -1 : fork();

	if (!child) {
		execvp(words[0], unconst(words));
		_exit(127);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

static int install_systemd(void)
{
	int status = write_file(SYSTEMD_UNIT, 0644, systemd_unit, -1);

	if (!status)
		status = make_link(SYSTEMD_UNIT, SYSTEMD_LINK);
	if (status)
		return status;
	run((const char *const[]){ "systemctl", "daemon-reload", NULL });
	run((const char *const[]){ "systemctl", "restart", "kvmscope-agent.service", NULL });
	return 0;
}

static int install_openrc(void)
{
	int status = write_file(OPENRC_FILE, 0755, openrc_file, -1);

	if (!status)
		status = make_link(OPENRC_FILE, OPENRC_LINK);
	if (!status)
		run((const char *const[]){ "rc-service", "kvmscope-agent", "restart", NULL });
	return status;
}

/* The inittab with room for one more line, or NULL if it is not busybox's: System V's has names and
 * runlevels in front.
 */
static char *read_inittab(void)
{
	char whole[PATH_MAX];
	FILE *file = fopen(below_root(INITTAB, whole), "re");
	char *text = file ? calloc(1, INITTAB_MAX + sizeof(INITTAB_LINE)) : NULL;
	size_t size = text ? fread(text, 1, INITTAB_MAX, file) : 0;

	if (file)
		fclose(file);
	if (size < INITTAB_MAX && text && strstr(text, "::"))
		return text;
	free(text);
	return NULL;
}

/* The start of the agent's line in TEXT, or NULL. */
static char *find_line(char *text)
{
	char *line = strstr(text, INITTAB_LINE);

	while (line && line != text && line[-1] != '\n')
		line = strstr(line + 1, INITTAB_LINE);
	return line;
}

static int install_busybox(char *text)
{
	int status = 0;

	if (!find_line(text)) {
		size_t length = strlen(text);

		if (length && text[length - 1] != '\n')
			text[length++] = '\n';
		memcpy(text + length, INITTAB_LINE, sizeof(INITTAB_LINE));
		status = write_file(INITTAB, 0644, text, -1);
		run((const char *const[]){ "kill", "-HUP", "1", NULL });
	}
	return status;
}

static int uninstall_busybox(void)
{
	char *text = read_inittab(), *line = text ? find_line(text) : NULL;
	int status = 0;

	if (line) {
		memmove(line, line + strlen(INITTAB_LINE), strlen(line + strlen(INITTAB_LINE)) + 1);
		status = write_file(INITTAB, 0644, text, -1);
		run((const char *const[]){ "kill", "-HUP", "1", NULL });
	}
	free(text);
	return status;
}

static int remove_file(const char *path)
{
	char whole[PATH_MAX];

	if (!unlink(below_root(path, whole))) {
		printf("removed %s\n", whole);
		return 0;
	}
	return errno == ENOENT || errno == ENOTDIR ? 0 : fail("remove", path);
}

/* False after a usage message. */
static bool parse(int argc, char **argv)
{
	if (argc == 1)
		return true;
	if (argc == 3 && !strcmp(argv[1], "--root")) {
		root = strcmp(argv[2], "/") ? argv[2] : "";
		return true;
	}
	fprintf(stderr, "Usage: kvmscope-agent %s [--root DIR]\n", argv[0]);
	return false;
}

int install_command(int argc, char **argv)
{
	char *inittab;
	int status;

	if (!parse(argc, argv))
		return 2;
	status = install_program();
	if (status)
		return status;
	if (exists("/etc/systemd/system") &&
	    !exists(OPENRC_RUNS)) /* packages may have units for either */
		return install_systemd();
	if (exists("/sbin/openrc-run"))
		return install_openrc();
	inittab = read_inittab();
	if (inittab) {
		status = install_busybox(inittab);
		free(inittab);
		return status;
	}
	fprintf(stderr,
		"kvmscope-agent: no systemd, OpenRC or busybox inittab found: configure the system's init to start " PROGRAM
		"\n");
	return 1;
}

int uninstall_command(int argc, char **argv)
{
	static const char *const files[] = { SYSTEMD_LINK, SYSTEMD_UNIT, OPENRC_LINK, OPENRC_FILE,
					     PROGRAM };
	int status;

	if (!parse(argc, argv))
		return 2;
	if (exists(SYSTEMD_UNIT))
		run((const char *const[]){ "systemctl", "stop", "kvmscope-agent.service", NULL });
	if (exists(OPENRC_FILE))
		run((const char *const[]){ "rc-service", "kvmscope-agent", "stop", NULL });
	status = uninstall_busybox();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		status |= remove_file(files[i]);
	return status;
}
