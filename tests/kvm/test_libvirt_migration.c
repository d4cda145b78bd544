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

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_daemon.h"

struct host {
	struct libvirt_daemon libvirt;
	struct daemon_run daemon;
};

static bool start_host(struct host *host)
{
	*host = (struct host){ 0 };
	daemon_run_prepare(&host->daemon, "");
	if (!libvirt_daemon_start(&host->libvirt))
		return false;
	snprintf(host->daemon.run, sizeof(host->daemon.run), "%s/kvmscope", host->libvirt.directory);
	snprintf(host->daemon.libvirt, sizeof(host->daemon.libvirt), "%s/run/qemu", host->libvirt.directory);
	snprintf(host->daemon.uri, sizeof(host->daemon.uri), "%s", host->libvirt.uri);
	return daemon_run_start(&host->daemon);
}

static void end_host(struct host *host)
{
	daemon_run_end(&host->daemon);
	libvirt_daemon_stop(&host->libvirt);
}

static bool has_logged(const struct host *host, const char *text)
{
	char *log = daemon_run_log(&host->daemon);
	bool found = strstr(log, text);

	free(log);
	return found;
}

static void show_log(const struct host *host)
{
	char *log = daemon_run_log(&host->daemon);

	FAIL_TEST("the log:\n%s", log);
	free(log);
}

static bool migrate(struct host *from, struct host *to, const char *name)
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

static void check_logged(const struct host *host, const char *name, const char *what)
{
	char text[96];

	snprintf(text, sizeof(text), "domain %s: %s", name, what);
	if (!has_logged(host, text))
		show_log(host);
}

static void follow(struct host *from, struct host *to, const char *name)
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

static void check_virsh(struct host *host, const char *arguments)
{
	char text[1024];

	if (libvirt_virsh(&host->libvirt, text, sizeof(text), arguments))
		FAIL_TEST("virsh %s: %s", arguments, text);
}

/* As libvirt runs it; the guest says by its exit status that it ran. */
static bool qemu_runs_guest_with_kvm(void)
{
	int status =
		system("timeout 60 qemu-system-x86_64 -accel kvm -cpu host -machine q35 -m 256 -nodefaults "
		       "-no-user-config -display none -device isa-debug-exit,iobase=0xf4,iosize=4 -no-reboot "
		       "-kernel " GUEST_IMAGE_MULTIBOOT
		       " -append 'program=hello exit=21' < /dev/null > /dev/null 2>&1");

	return WIFEXITED(status) && WEXITSTATUS(status) == (21 << 1 | 1);
}

/* What the hosts' KVM can run is a guest of our own. */
static void follow_by_kvm(struct host *from, struct host *to)
{
	const struct libvirt_domain domain = {
		.kvm_kernel = GUEST_IMAGE_MULTIBOOT,
		.command_line = "program=shares rounds=1000000",
		.extra = "<metadata>" FAKE_PROFILE("frequency='99'") "</metadata>",
	};

	if (!guest_run_possible()) {
		printf("/dev/kvm can not be opened: only a domain that is emulated is followed\n");
	} else if (!qemu_runs_guest_with_kvm()) {
		printf("qemu-system-x86_64 does not run this guest with KVM here: "
		       "only a domain that is emulated is followed\n");
	} else if (libvirt_domain_start_with(&from->libvirt, "two", &domain)) {
		follow(from, to, "two");
		check_virsh(to, "destroy two");
	}
}

static long count_samples(const struct host *host)
{
	json_t *status = daemon_run_ask(&host->daemon, "domain-status", json_pack("{s:s}", "domain", "one"));
	long samples = (long)json_integer_value(json_object_get(status, "samples"));

	json_decref(status);
	return samples;
}

/* After BEFORE, which are none of a domain that has another process now. */
static void check_it_goes_on(struct host *host, long before, const char *what)
{
	if (!daemon_run_wait_for_samples(&host->daemon, "one", before + 10))
		FAIL_TEST("no samples after %s", what);
}

/* The other host can not be reached: it stays, and nobody believes that it has gone. */
static void fail_to_migrate(struct host *from, struct host *to)
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

static void disturb(struct host *host)
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
	struct host one, other;

	LIBVIRT_REQUIRED();
	if (start_host(&one) && start_host(&other) &&
	    libvirt_domain_start(&one.libvirt, "one",
				 "<metadata>" FAKE_PROFILE("frequency='50'") "</metadata>")) {
		CHECK(daemon_run_wait_for_samples(&one.daemon, "one", 20));
		fail_to_migrate(&one, &other);
		follow(&one, &other, "one");
		follow_by_kvm(&one, &other);
		disturb(&other);
		CHECK(!libvirt_virsh(&other.libvirt, NULL, 0, "destroy one"));
		CHECK(daemon_run_wait_for_domains(&other.daemon, 0));
		CHECK(!has_logged(&other, "moved"));
	}
	end_host(&one);
	end_host(&other);
}
