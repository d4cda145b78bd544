/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/daemon_run.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "vmm/control/control_client.h"

#define TRIES    1200 /* a minute */
#define PAUSE_US 50000

void daemon_run_write_conf(const struct daemon_run *daemon, const char *conf)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/kvmscope.conf", daemon->directory);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	fprintf(file,
		"[recordings]\ndirectory = %s/recordings\nrotate = 1s\nreserve = 0\n[metrics]\nlisten = off\n%s",
		daemon->directory, conf);
	fclose(file);
}

void daemon_run_prepare(struct daemon_run *daemon, const char *conf)
{
	*daemon = (struct daemon_run){ .directory = "/tmp/kvmscope-daemon-XXXXXX",
				       .uri = "test:///default" };
	REQUIRE(mkdtemp(daemon->directory) != NULL);
	snprintf(daemon->run, sizeof(daemon->run), "%s/run", daemon->directory);
	snprintf(daemon->libvirt, sizeof(daemon->libvirt), "%s/libvirt", daemon->directory);
	CHECK(!mkdir(daemon->run, 0755) && !mkdir(daemon->libvirt, 0755));
	daemon_run_write_conf(daemon, conf);
}

/*
 * Runs in the child. The log is appended to the same file. Symbols for perf are stored nowhere
 * else.
 */
static _Noreturn void become_daemon(const struct daemon_run *daemon)
{
	char self[PATH_MAX] = "", program[PATH_MAX + 16], conf[128], log[128];

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		_exit(126);
	snprintf(program, sizeof(program), "%s/kvmscoped", dirname(self));
	snprintf(conf, sizeof(conf), "%s/kvmscope.conf", daemon->directory);
	snprintf(log, sizeof(log), "%s/log", daemon->directory);
	setenv("HOME", daemon->directory, 1);
	dup2(open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
	execl(program, "kvmscoped", "--verbose", "--config", conf, "--run-directory", daemon->run,
	      "--libvirt-directory", daemon->libvirt, "--connect", daemon->uri, NULL);
	_exit(127);
}

char *daemon_run_log(const struct daemon_run *daemon)
{
	char path[128], *text = calloc(1, 1 << 20);
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", daemon->directory);
	file = fopen(path, "re");
	if (file) {
		text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
		fclose(file);
	}
	return text;
}

static bool fail_with_log(const struct daemon_run *daemon, const char *what)
{
	char *log = daemon_run_log(daemon);

	FAIL_TEST("%s:\n%s", what, log);
	free(log);
	return false;
}

void daemon_run_launch(struct daemon_run *daemon)
{
	fflush(NULL);
	daemon->pid = fork();
	if (!daemon->pid)
		become_daemon(daemon);
}

bool daemon_run_start(struct daemon_run *daemon)
{
	daemon_run_launch(daemon);
	for (int i = 0; i < TRIES; i++) {
		json_t *status = daemon_run_ask(daemon, "status", NULL);

		json_decref(status);
		if (status)
			return true;
		if (waitpid(daemon->pid, NULL, WNOHANG) == daemon->pid) {
			daemon->pid = 0;
			break;
		}
		usleep(PAUSE_US);
	}
	return fail_with_log(daemon, "kvmscoped does not start");
}

int daemon_run_stop(struct daemon_run *daemon, int signal)
{
	int status = 0;

	if (daemon->pid > 0) {
		kill(daemon->pid, signal);
		waitpid(daemon->pid, &status, 0);
	}
	daemon->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void daemon_run_end(struct daemon_run *daemon)
{
	char command[96];

	daemon_run_stop(daemon, SIGKILL);
	snprintf(command, sizeof(command), "rm -rf %s", daemon->directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

json_t *daemon_run_ask(const struct daemon_run *daemon, const char *command, json_t *arguments)
{
	json_t *result = NULL;
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/kvmscoped.sock", daemon->run);
	fd = control_connect(path);
	if (fd >= 0 && control_call(fd, command, arguments, &result))
		result = NULL;
	if (fd >= 0)
		close(fd);
	json_decref(arguments);
	return result;
}

bool daemon_run_wait_for_samples(const struct daemon_run *daemon, const char *domain, long samples)
{
	for (int i = 0; i < TRIES; i++) {
		json_t *status = daemon_run_ask(daemon, "domain-status",
						json_pack("{s:s}", "domain", domain));
		bool enough = json_integer_value(json_object_get(status, "samples")) >= samples;

		json_decref(status);
		if (enough)
			return true;
		usleep(PAUSE_US);
	}
	return fail_with_log(daemon, domain);
}

bool daemon_run_wait_for_domains(const struct daemon_run *daemon, size_t count)
{
	for (int i = 0; i < TRIES; i++) {
		json_t *list = daemon_run_ask(daemon, "domains", NULL);
		bool right = list && json_array_size(json_object_get(list, "domains")) == count;

		json_decref(list);
		if (right)
			return true;
		usleep(PAUSE_US);
	}
	return fail_with_log(daemon, "another number of domains");
}

bool daemon_run_wait_for_log(const struct daemon_run *daemon, const char *text)
{
	bool found = false;

	for (int i = 0; i < TRIES && !found; i++) {
		char *log = daemon_run_log(daemon);

		found = strstr(log, text);
		free(log);
		if (!found)
			usleep(PAUSE_US);
	}
	return found || fail_with_log(daemon, text);
}

static void make_path(char *path, size_t size, const struct daemon_run *daemon, const char *name,
		      const char *suffix)
{
	snprintf(path, size, "%s/%s%s", daemon->libvirt, name, suffix);
}

/*
 * Runs in the child. Like libvirt, it locks the file, and the lock is kept when it becomes the VMM.
 */
static void lock_pid_file(const char *path)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(path, O_RDWR | O_CREAT,
		      0600); /* NOLINT(android-cloexec-open): the lock must survive exec */

	if (fd < 0 || fcntl(fd, F_SETLK, &lock) || ftruncate(fd, 0) ||
	    dprintf(fd, "%d\n", getpid()) < 2)
		_exit(126);
}

void fake_domain_write(const struct daemon_run *daemon, const char *name, pid_t pid,
		       const char *metadata)
{
	char path[512], unfinished[512];
	FILE *file;

	make_path(path, sizeof(path), daemon, name, ".xml");
	make_path(unfinished, sizeof(unfinished), daemon, name, ".xml.new");
	file = fopen(unfinished, "we");
	REQUIRE(file != NULL);
	fprintf(file,
		"<domstatus state='running' reason='booted' pid='%d'><domain type='kvm' id='1'><name>%s</name>"
		"<metadata>%s</metadata></domain></domstatus>\n",
		pid, name, metadata);
	fclose(file);
	CHECK(!rename(unfinished, path));
}

static _Noreturn void become_vm(void)
{
	program_exec("run --no-profile --no-control --kernel " GUEST_IMAGE
		     " --mem 16M --timeout 300 --append program=spin");
}

static _Noreturn void become_idle(void)
{
	execlp("sleep", "sleep", "300", NULL);
	_exit(127);
}

static void start_domain(struct program *vm, const struct daemon_run *daemon, const char *name,
			 const char *metadata, void (*become)(void))
{
	char path[512];

	make_path(path, sizeof(path), daemon, name, ".pid");
	*vm = (struct program){ .output = open("/dev/null", O_RDONLY | O_CLOEXEC) };
	fflush(NULL);
	vm->pid = fork();
	if (!vm->pid) {
		lock_pid_file(path);
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDOUT_FILENO);
		dup2(STDOUT_FILENO, STDERR_FILENO);
		become();
	}
	for (int i = 0; i < TRIES; i++) {
		struct stat status;

		if (!stat(path, &status) && status.st_size)
			break;
		usleep(1000);
	}
	fake_domain_write(daemon, name, vm->pid, metadata);
}

void fake_domain_start(struct program *vm, const struct daemon_run *daemon, const char *name,
		       const char *metadata)
{
	start_domain(vm, daemon, name, metadata, become_vm);
}

void fake_domain_start_without_vm(struct program *process, const struct daemon_run *daemon,
				  const char *name, const char *metadata)
{
	start_domain(process, daemon, name, metadata, become_idle);
}

bool fake_domain_kill(struct program *vm)
{
	bool ran = !waitpid(vm->pid, NULL, WNOHANG);

	if (ran) {
		kill(vm->pid, SIGKILL);
		waitpid(vm->pid, NULL, 0);
	}
	close(vm->output);
	return ran;
}
