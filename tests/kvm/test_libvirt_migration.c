// SPDX-License-Identifier: Apache-2.0
/*
 * What libvirt does to a domain that runs: moves it to another host, each with a kvmscoped of its own;
 * suspends, saves and resets it, while libvirtd is killed. The profile follows.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_host.h"
#include "tests/kvm/migrated_guest.h"

static bool start(struct libvirt_host *host)
{
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
		 "migrate --live --p2p --domain %s --desturi '%s' --migrateuri tcp://127.0.0.1", name,
		 to->libvirt.uri);
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

static void follow(struct libvirt_host *from, struct libvirt_host *to, const char *name)
{
	pid_t pid = libvirt_domain_pid(&from->libvirt, name);

	CHECK(daemon_run_wait_for_samples(&from->daemon, name, 20));
	if (!migrate(from, to, name))
		return;
	CHECK(libvirt_domain_pid(&to->libvirt, name) != pid);
	CHECK(daemon_run_wait_for_domains(&from->daemon, 0));
	CHECK(daemon_run_wait_for_samples(&to->daemon, name, 20));
	check_logged(from, name, "it has moved to another host");
	check_logged(to, name, "it arrives from another host");
	CHECK(!has_logged(from, "can not be profiled"));
}

static void check_virsh(struct libvirt_host *host, const char *arguments)
{
	char text[1024];

	if (libvirt_virsh(&host->libvirt, text, sizeof(text), arguments))
		FAIL_TEST("virsh %s: %s", arguments, text);
}

/* As libvirt runs the test guest, which says by its exit status that it ran. */
static bool qemu_runs_guest_with_kvm(void)
{
	int status = system(
		"timeout 60 qemu-system-x86_64 -accel kvm -cpu host,arch-capabilities=off -machine q35 -m 256 -nodefaults "
		"-no-user-config -display none -device isa-debug-exit,iobase=0xf4,iosize=4 -no-reboot "
		"-kernel " GUEST_IMAGE_MULTIBOOT
		" -append 'program=hello exit=21' < /dev/null > /dev/null 2>&1");

	return WIFEXITED(status) && WEXITSTATUS(status) == (21 << 1 | 1);
}

static bool wait_until_it_works(const struct libvirt_host *host, const char *name, const char *says)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "timeout 120 sh -c 'until grep -qs \"%s\" %s/log/%s.console; do sleep 0.1; done'", says,
		 host->libvirt.directory, name);
	return !system(command); /* NOLINT(cert-env33-c): a test's own words */
}

/* The latest file of NAME, which is complete. */
static void check_names(const struct libvirt_host *host, const char *name)
{
	char command[256], path[256] = "";
	FILE *list;

	snprintf(command, sizeof(command), "ls %s/recordings/%s/*.perf.data | tail -n 1 | tr -d '\n'",
		 host->daemon.directory, name);
	list = popen(command, "re"); /* NOLINT(cert-env33-c): a test's own words */
	if (!list || !fgets(path, sizeof(path), list))
		FAIL_TEST("there is no recording of %s", name);
	else
		migrated_guest_check_names(path);
	if (list)
		pclose(list);
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
	CHECK(wait_until_it_works(from, "two", guest->says));
	follow(from, to, "two");
	check_virsh(to, "destroy two");
	CHECK(daemon_run_wait_for_domains(&to->daemon, 0));
	if (!guest->initrd)
		return;
	check_names(from, "two");
	check_names(to, "two");
}

TEST(libvirt_migration, a_guest_of_kvm_is_followed_out_and_in)
{
	struct libvirt_host one, other;

	LIBVIRT_REQUIRED();
	if (!guest_run_possible())
		SKIP("/dev/kvm can not be opened");
	if (!qemu_runs_guest_with_kvm())
		SKIP("qemu-system-x86_64 does not run the test guest with KVM here");
	libvirt_host_prepare(&one, "");
	libvirt_host_prepare(&other, "");
	if (start(&one) && start(&other))
		follow_by_kvm(&one, &other);
	libvirt_host_end(&one);
	libvirt_host_end(&other);
}

static long count_samples(const struct libvirt_host *host)
{
	json_t *status = daemon_run_ask(&host->daemon, "domain-status", json_pack("{s:s}", "domain", "one"));
	long samples = (long)json_integer_value(json_object_get(status, "samples"));

	json_decref(status);
	return samples;
}

/* After BEFORE, which are none of a domain that has another process now. */
static void check_it_goes_on(struct libvirt_host *host, long before, const char *what)
{
	if (!daemon_run_wait_for_samples(&host->daemon, "one", before + 10))
		FAIL_TEST("no samples after %s", what);
}

/* The other host can not be reached: it stays, and nobody believes that it has gone. */
static void fail_to_migrate(struct libvirt_host *from, struct libvirt_host *to)
{
	long before = count_samples(from);
	char arguments[512];

	snprintf(arguments, sizeof(arguments),
		 "migrate --live --p2p --domain one --desturi '%s' --migrateuri unix:%s/nowhere/socket",
		 to->libvirt.uri, to->libvirt.directory);
	CHECK(libvirt_virsh(&from->libvirt, NULL, 0, arguments) != 0);
	check_it_goes_on(from, before, "a migration that failed");
	CHECK(!has_logged(from, "moved"));
}

static void disturb(struct libvirt_host *host)
{
	pid_t pid = libvirt_domain_pid(&host->libvirt, "one");
	char arguments[128];

	check_virsh(host, "suspend one");
	libvirt_daemon_kill(&host->libvirt);
	CHECK(libvirt_daemon_restart(&host->libvirt));
	check_virsh(host, "resume one");
	check_it_goes_on(host, count_samples(host), "it was suspended");
	check_virsh(host, "reset one");
	check_it_goes_on(host, count_samples(host), "a reset");
	CHECK_EQUAL(libvirt_domain_pid(&host->libvirt, "one"), pid);

	snprintf(arguments, sizeof(arguments), "save one %s/saved", host->libvirt.directory);
	check_virsh(host, arguments);
	CHECK(daemon_run_wait_for_domains(&host->daemon, 0));
	snprintf(arguments, sizeof(arguments), "restore %s/saved", host->libvirt.directory);
	check_virsh(host, arguments);
	check_it_goes_on(host, 0, "it was saved and restored");
}

TEST(libvirt_migration, a_profile_follows_what_libvirt_does)
{
	struct libvirt_host one, other;

	LIBVIRT_REQUIRED();
	libvirt_host_prepare(&one, "");
	libvirt_host_prepare(&other, "");
	if (start(&one) && start(&other) &&
	    libvirt_domain_start(&one.libvirt, "one",
				 "<metadata>" FAKE_PROFILE("frequency='50'") "</metadata>")) {
		CHECK(daemon_run_wait_for_samples(&one.daemon, "one", 20));
		fail_to_migrate(&one, &other);
		follow(&one, &other, "one");
		disturb(&other);
		CHECK(!libvirt_virsh(&other.libvirt, NULL, 0, "destroy one"));
		CHECK(daemon_run_wait_for_domains(&other.daemon, 0));
		CHECK(!has_logged(&other, "moved"));
	}
	libvirt_host_end(&one);
	libvirt_host_end(&other);
}
