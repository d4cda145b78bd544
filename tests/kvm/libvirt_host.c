/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/libvirt_host.h"

#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/text_file.h"
#include "vmm/daemon/hook_install.h"
#include "vmm/daemon/hook_message.h"

void libvirt_host_prepare(struct libvirt_host *host, const char *conf)
{
	*host = (struct libvirt_host){ 0 };
	libvirt_daemon_prepare(&host->libvirt);
	daemon_run_prepare(&host->daemon, conf);
	snprintf(host->daemon.run, sizeof(host->daemon.run), "%s/kvmscope",
		 host->libvirt.directory);
	snprintf(host->daemon.libvirt, sizeof(host->daemon.libvirt), "%s/run/qemu",
		 host->libvirt.directory);
	snprintf(host->daemon.uri, sizeof(host->daemon.uri), "%s", host->libvirt.uri);
}

void libvirt_host_install_hook(const struct libvirt_host *host)
{
	char hooks[96];

	snprintf(hooks, sizeof(hooks), "%s/etc/hooks", host->libvirt.directory);
	CHECK_EQUAL(hook_install(hooks), 0);
}

int libvirt_host_type(const struct libvirt_host *host, const char *line, char *text, size_t size)
{
	char self[PATH_MAX] = "", command[2 * PATH_MAX];
	FILE *output;
	int status;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	text_file_write(host->daemon.directory, "line", "%s\n", line);
	/*
	 * The final SIGKILL ends everything that it started: a process that remains would keep the
	 * pipe open.
	 */
	snprintf(
		command, sizeof(command),
		"exec 2>&1 < /dev/null timeout -k 10 120 nsenter --target %d --mount --wd=%s "
		"env -u XDG_RUNTIME_DIR HOME=%s LIBVIRT_DEFAULT_URI='%s' PATH=%s/bin:%s:$PATH bash -e line",
		host->libvirt.keeper, host->daemon.directory, host->daemon.directory,
		host->libvirt.uri, host->daemon.directory, dirname(self));
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	if (!output)
		return -1;
	text[fread(text, 1, size - 1, output)] = '\0';
	status = pclose(output);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The output of find with CONDITIONS below DIRECTORY. */
static void check_no_file(const char *directory, const char *conditions)
{
	char command[384], text[1024];
	FILE *output;

	snprintf(command, sizeof(command), "find %s %s 2>&1", directory, conditions);
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	REQUIRE(output != NULL);
	text[fread(text, 1, sizeof(text) - 1, output)] = '\0';
	pclose(output);
	if (*text)
		FAIL_TEST("left over:\n%s", text);
}

void libvirt_host_check_nothing_is_left(const struct libvirt_host *host, const char *names)
{
	char path[96], domains[64];

	check_no_file(host->daemon.run, "-mindepth 1 ! -name kvmscoped.lock ! -name " HOOK_SPOOL
					" ! -name " HOOK_DROPPED);
	snprintf(domains, sizeof(domains), "-name '%s*'", names);
	check_no_file(host->daemon.libvirt, domains);
	snprintf(path, sizeof(path), "%s/lib", host->libvirt.directory);
	check_no_file(path, "-type s");
	snprintf(path, sizeof(path), "%s/recordings", host->daemon.directory);
	check_no_file(
		path,
		"-name names -prune -o -type f ! -name '*.perf.data' ! -name '*.perf.data.new' ! "
		"-name domain -print");
}

void libvirt_host_end(struct libvirt_host *host)
{
	daemon_run_end(&host->daemon);
	libvirt_daemon_stop(&host->libvirt);
}

bool libvirt_host_runs(const struct libvirt_host *host, const char *name, pid_t pid)
{
	return pid > 0 && !kill(pid, 0) && libvirt_domain_pid(&host->libvirt, name) == pid;
}
