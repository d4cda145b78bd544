/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvirt does to a running domain: it moves it to another host (each with its own kvmscoped),
 * suspends, saves and resets it, while libvirtd is killed. The profile follows.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_host.h"
#include "tests/kvm/migrated_guest.h"
#include "tests/kvm/program.h"
#include "tests/unit/pprof_store.h"
#include "tests/unit/pprof_text.h"

#define TRIES 600 /* of 0.1 s, a minute */

/* All data of one host is in one file. */
#define WHOLE "[recordings]\nrotate = 1h\n"

/* Both report to kvmscoped by the hook. */
static bool start(struct libvirt_host *host)
{
	libvirt_host_install_hook(host);
	return libvirt_daemon_start(&host->libvirt) && daemon_run_start(&host->daemon);
}

static bool has_logged(const struct libvirt_host *host, const char *text)
{
	char *log = daemon_run_log(&host->daemon);
	bool found = strstr(log, text);

	free(log);
	return found;
}

static void show_log(const struct libvirt_host *host)
{
	char *log = daemon_run_log(&host->daemon);

	FAIL_TEST("the log:\n%s", log);
	free(log);
}

static bool migrate(struct libvirt_host *from, struct libvirt_host *to, const char *name)
{
	char arguments[512], text[1024];
	bool moved;

	snprintf(arguments, sizeof(arguments),
		 "migrate --live --p2p --domain %s --desturi '%s' --migrateuri tcp://127.0.0.1",
		 name, to->libvirt.uri);
	moved = !libvirt_virsh(&from->libvirt, text, sizeof(text), arguments);
	if (!moved)
		FAIL_TEST("virsh %s: %s", arguments, text);
	return moved;
}

static void check_logged(const struct libvirt_host *host, const char *name, const char *what)
{
	char text[96];

	snprintf(text, sizeof(text), "domain %s: %s", name, what);
	if (!has_logged(host, text))
		show_log(host);
}

/* Reported by libvirt's hook; either message is enough. The check fails after a minute. */
static void check_reported(const struct libvirt_host *host, const char *name, const char *one,
			   const char *other)
{
	char text[2][96];

	snprintf(text[0], sizeof(text[0]), "libvirt: domain %s: %s\n", name, one);
	snprintf(text[1], sizeof(text[1]), "libvirt: domain %s: %s\n", name, other);
	for (int tries = 0; tries < TRIES; tries++) {
		if (has_logged(host, text[0]) || has_logged(host, text[1]))
			return;
		usleep(100000);
	}
	show_log(host);
	FAIL_TEST("the hook has reported neither %s nor %s", one, other);
}

static void follow(struct libvirt_host *from, struct libvirt_host *to, const char *name)
{
	pid_t pid = libvirt_domain_pid(&from->libvirt, name);

	CHECK(daemon_run_wait_for_samples(&from->daemon, name, 20));
	if (!migrate(from, to, name))
		return;
	CHECK(libvirt_domain_pid(&to->libvirt, name) != pid);
	CHECK(daemon_run_wait_for_domains(&from->daemon, 0));
	CHECK(daemon_run_wait_for_samples(&to->daemon, name, 20));
	check_logged(from, name, "it has migrated to another host");
	check_logged(to, name, "it migrates here from another host");
	CHECK(!has_logged(from, "cannot be profiled"));
	check_reported(to, name, "migrate", "started");
	check_reported(from, name, "stopped", "release");
}

static void check_virsh(struct libvirt_host *host, const char *arguments)
{
	char text[1024];

	if (libvirt_virsh(&host->libvirt, text, sizeof(text), arguments))
		FAIL_TEST("virsh %s: %s", arguments, text);
}

/* As libvirt runs the test guest, which reports by its exit status that it ran. */
static bool qemu_runs_guest_with_kvm(void)
{
	int status = system(
		"timeout -k 10 60 qemu-system-x86_64 -accel kvm -cpu host,arch-capabilities=off -machine q35 -m 256 -nodefaults "
		"-no-user-config -display none -device isa-debug-exit,iobase=0xf4,iosize=4 -no-reboot "
		"-kernel " GUEST_IMAGE_MULTIBOOT
		" -append 'program=hello exit=21' < /dev/null > /dev/null 2>&1");

	return WIFEXITED(status) && WEXITSTATUS(status) == (21 << 1 | 1);
}

static bool wait_until_it_works(const struct libvirt_host *host, const char *name,
				const char *banner)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "timeout 120 sh -c 'until grep -qs \"%s\" %s/log/%s.console; do sleep 0.1; done'",
		 banner, host->libvirt.directory, name);
	return !system(command); /* NOLINT(cert-env33-c): the test's own command */
}

/* The latest complete file of NAME. */
static void check_names(const struct libvirt_host *host, const char *name)
{
	char command[256], path[256] = "";
	FILE *list;

	snprintf(command, sizeof(command),
		 "ls %s/recordings/%s/*.perf.data | tail -n 1 | tr -d '\n'", host->daemon.directory,
		 name);
	list = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	if (!list || !fgets(path, sizeof(path), list))
		FAIL_TEST("no recording of %s", name);
	else
		migrated_guest_check_names(path);
	if (list)
		pclose(list);
}

/* Each host has the domain's directory, and nothing else is left. */
static void check_end(struct libvirt_host *host, const char *name)
{
	char command[256];

	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGTERM), 0);
	libvirt_host_check_nothing_is_left(host, name);
	snprintf(command, sizeof(command),
		 "cd %s/recordings/%s && test $(cat domain) = %s && ls *.perf.data* > /dev/null",
		 host->daemon.directory, name, name);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

/* A table of kvmscope top with a function of the domain. */
static void check_top(const struct libvirt_host *host, const char *name)
{
	char arguments[256];
	struct program top;

	snprintf(arguments, sizeof(arguments), "top --domain %s --connect %s --batch -n 1", name,
		 host->libvirt.uri);
	program_run(&top, arguments);
	if (top.status || !strstr(top.text, "1 VM, 1 vCPU ") || !strstr(top.text, name) ||
	    !(strstr(top.text, " [k] ") || strstr(top.text, " [.] ")))
		FAIL_TEST("%s: status %d\n%s", arguments, top.status, top.text);
}

static void follow_by_kvm(struct libvirt_host *from, struct libvirt_host *to)
{
	const struct migrated_guest *guest = migrated_guest();
	const struct libvirt_domain domain = {
		.kvm_kernel = guest->kernel,
		.initrd = guest->initrd,
		.command_line = guest->command_line,
		.extra = "<metadata>" FAKE_PROFILE("frequency='99'") "</metadata>",
	};

	if (!libvirt_domain_start_with(&from->libvirt, "two", &domain))
		return;
	CHECK(wait_until_it_works(from, "two", guest->banner));
	if (!guest->initrd)
		check_top(from, "two");
	follow(from, to, "two");
	check_virsh(to, "destroy two");
	CHECK(daemon_run_wait_for_domains(&to->daemon, 0));
	check_end(from, "two");
	check_end(to, "two");
	if (!guest->initrd)
		return;
	check_names(from, "two");
	check_names(to, "two");
}

TEST(libvirt_migration, a_guest_of_kvm_is_followed_out_and_in)
{
	struct libvirt_host one, other;

	LIBVIRT_REQUIRED();
	GUEST_REQUIRED();
	if (!qemu_runs_guest_with_kvm())
		SKIP("qemu-system-x86_64 does not run the test guest with KVM here");
	libvirt_host_prepare(&one, WHOLE);
	libvirt_host_prepare(&other, WHOLE);
	if (start(&one) && start(&other))
		follow_by_kvm(&one, &other);
	libvirt_host_end(&one);
	libvirt_host_end(&other);
}

static long count_samples(const struct libvirt_host *host)
{
	json_t *status =
		daemon_run_ask(&host->daemon, "domain-status", json_pack("{s:s}", "domain", "one"));
	long samples = (long)json_integer_value(json_object_get(status, "samples"));

	json_decref(status);
	return samples;
}

/* Newer than BEFORE, which would be files of a domain whose process has changed. */
static void check_it_continues(struct libvirt_host *host, long before, const char *what)
{
	if (!daemon_run_wait_for_samples(&host->daemon, "one", before + 10))
		FAIL_TEST("no samples after %s", what);
}

/* The other host cannot be reached: the domain stays, and is not considered migrated. */
static void fail_to_migrate(struct libvirt_host *from, struct libvirt_host *to)
{
	long before = count_samples(from);
	char arguments[512];

	snprintf(
		arguments, sizeof(arguments),
		"migrate --live --p2p --domain one --desturi '%s' --migrateuri unix:%s/nowhere/socket",
		to->libvirt.uri, to->libvirt.directory);
	CHECK(libvirt_virsh(&from->libvirt, NULL, 0, arguments) != 0);
	check_it_continues(from, before, "a migration that failed");
	CHECK(!has_logged(from, "moved"));
}

/*
 * libvirtd is killed while the domain is suspended. Its hook reports each domain that it finds
 * again.
 */
static void disturb(struct libvirt_host *host)
{
	pid_t pid = libvirt_domain_pid(&host->libvirt, "one");

	check_virsh(host, "suspend one");
	libvirt_daemon_kill(&host->libvirt);
	CHECK(libvirt_daemon_restart(&host->libvirt));
	check_reported(host, "one", "reconnect", "reconnect");
	check_virsh(host, "resume one");
	check_it_continues(host, count_samples(host), "it was suspended");
	check_virsh(host, "reset one");
	check_it_continues(host, count_samples(host), "a reset");
	CHECK_EQUAL(libvirt_domain_pid(&host->libvirt, "one"), pid);
}

/* kvmscoped is restarted alone, and then while there is no libvirtd. */
static void restart(struct libvirt_host *host)
{
	pid_t pid = libvirt_domain_pid(&host->libvirt, "one");

	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGTERM), 0);
	CHECK(daemon_run_start(&host->daemon));
	check_it_continues(host, 0, "kvmscoped's restart");
	libvirt_daemon_kill(&host->libvirt);
	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGKILL), 128 + SIGKILL);
	CHECK(daemon_run_start(&host->daemon));
	CHECK(daemon_run_wait_for_domains(&host->daemon, 1));
	CHECK(libvirt_daemon_restart(&host->libvirt));
	check_it_continues(host, 0, "a restart of both");
	CHECK(libvirt_host_runs(host, "one", pid));
}

/* To a file, and to libvirt's managed save. */
static void save(struct libvirt_host *host)
{
	char arguments[192];

	snprintf(arguments, sizeof(arguments), "save one %s/saved", host->libvirt.directory);
	check_virsh(host, arguments);
	CHECK(daemon_run_wait_for_domains(&host->daemon, 0));
	snprintf(arguments, sizeof(arguments), "restore %s/saved", host->libvirt.directory);
	check_virsh(host, arguments);
	check_it_continues(host, 0, "it was saved and restored");

	snprintf(arguments, sizeof(arguments), "dumpxml one > %s/one.xml", host->libvirt.directory);
	check_virsh(host, arguments);
	snprintf(arguments, sizeof(arguments), "define %s/one.xml", host->libvirt.directory);
	check_virsh(host, arguments);
	check_virsh(host, "managedsave one");
	CHECK(daemon_run_wait_for_domains(&host->daemon, 0));
	check_virsh(host, "start one");
	check_it_continues(host, 0, "a managed save");
}

/* A host that pushes to a store of its own. */
struct site {
	struct libvirt_host host;
	struct pprof_store store;
	unsigned int seen; /* profiles that the store received */
};

static bool start_site(struct site *site)
{
	char conf[256];

	site->seen = 0;
	libvirt_host_prepare(&site->host, "");
	pprof_store_init(&site->store);
	pprof_store_start(&site->store);
	snprintf(conf, sizeof(conf),
		 "[push]\nurl = http://127.0.0.1:%u\nspool = %s/push\ninterval = 2s\n",
		 site->store.port, site->host.daemon.directory);
	daemon_run_write_conf(&site->host.daemon, conf);
	return start(&site->host);
}

static void end_site(struct site *site)
{
	libvirt_host_end(&site->host);
	pprof_store_free(&site->store);
}

/* True if it has symbols of a kernel that has found no root file system and spins in panic(). */
static bool has_names(const struct site *site, const struct pprof_received *received)
{
	char path[128], *text;
	bool found;
	FILE *file;

	snprintf(path, sizeof(path), "%s/received", site->host.daemon.directory);
	file = fopen(path, "we");
	CHECK(file && fwrite(received->profile, 1, received->size, file) == received->size);
	if (file)
		fclose(file);
	text = pprof_text(path);
	found = strstr(text, "\"delay_") || strstr(text, "\"__const_udelay\"") ||
		strstr(text, "\"panic\"");
	free(text);
	return found;
}

/* Profiles of the domain ONE, with this host's labels, as before and after. */
static void check_pushed(struct site *site)
{
	char host[HOST_NAME_MAX + 1] = "", name[HOST_NAME_MAX + 64];

	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "kvmscope{host=%s,domain=one,vcpu=0}", host);
	for (int tries = 0; tries < TRIES; tries++) {
		for (; site->seen < site->store.count; site->seen++) {
			CHECK_STRING(site->store.received[site->seen].name, name);
			if (has_names(site, &site->store.received[site->seen]))
				return;
		}
		usleep(100000);
	}
	show_log(&site->host);
	FAIL_TEST("none of %u profiles has functions of the kernel", site->seen);
}

static void follow_site(struct site *one, struct site *other)
{
	CHECK(daemon_run_wait_for_samples(&one->host.daemon, "one", 20));
	check_pushed(one);
	fail_to_migrate(&one->host, &other->host);
	follow(&one->host, &other->host, "one");
	check_pushed(other);
	disturb(&other->host);
	save(&other->host);
	restart(&other->host);
	check_pushed(other);
	check_virsh(&other->host, "destroy one");
	CHECK(daemon_run_wait_for_domains(&other->host.daemon, 0));
	CHECK(!has_logged(&other->host, "moved"));
	check_end(&one->host, "one");
	check_end(&other->host, "one");
}

/* Debian's kernel, which is emulated. */
TEST(libvirt_migration, a_profile_follows_what_libvirt_does)
{
	static struct site one, other;

	LIBVIRT_REQUIRED();
	if (start_site(&one) && start_site(&other) &&
	    libvirt_domain_start(&one.host.libvirt, "one",
				 "<metadata>" FAKE_PROFILE("frequency='50'") "</metadata>"))
		follow_site(&one, &other);
	end_site(&one);
	end_site(&other);
}
