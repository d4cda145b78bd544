/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that exists only on the guest's disk is symbolized by report and later by perf; and at
 * once when a recording ends.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/perf_home.h"
#include "tests/kvm/daemon_run.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/rights.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/disk/disk_symbols.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/disk/sandbox_parts.h"

#define NEED_READER                                                                                \
	do {                                                                                       \
		if (access("/usr/bin/grub-fstest", X_OK))                                          \
			SKIP("grub-fstest (package grub-common) is not installed");                \
	} while (0)

/* HOME/perf.data of a program that exists only on HOME/disk, with OPTIONS. */
static void record_deleted(const char *home, const char *options)
{
	free(perf_output(
		"cp build/inlines/gcc %s/gone && mkdir -p %s/tree%s && cp build/inlines/gcc %s/tree%s/gone && "
		"truncate -s 64M %s/disk && PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -d %s/tree %s/disk && "
		"perf record -q -e cpu-clock -F 5000 %s -o %s/perf.data %s/gone 2>&1; rm -rf %s/gone %s/.debug %s/tree",
		home, home, home, home, home, home, home, home, options, home, home, home, home,
		home));
}

TEST(guest_disk_report, symbolizes_programs_that_exist_only_on_the_disk)
{
	char home[64];
	int status;
	char *text;

	NEED_PERF;
	NEED_READER;
	perf_home_enter(home);
	record_deleted(home, "");
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, " gone"));
	CHECK(!strstr(text, "hash_block"));
	free(text);
	/* The few samples in its own code may all be in functions inlined there. */
	text = command_output(
		&status,
		"build/kvmscope report -i %s/perf.data --inline --children --guest-disk %s/disk",
		home, home);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "hash_block"));
	CHECK(strstr(text, "mix (inlined)"));
	free(text);

	/* The file is in the build-id cache now. */
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = perf_output("perf report -i %s/perf.data --stdio --no-inline 2> /dev/null", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = command_output(
		&status, "build/kvmscope report -i %s/perf.data --guest-disk Makefile 2>&1", home);
	CHECK_EQUAL(status, 1);
	CHECK(strstr(text, "no ext4, XFS or btrfs file system"));
	free(text);
	perf_home_leave(home);
}

static bool is_over(void *context)
{
	(void)context;
	return true;
}

TEST(guest_disk_report, disks_are_searched_when_a_recording_ends)
{
	char home[64], recording[96], second[112], disk[96], others[96];
	const char *const disks[] = { "Makefile", disk };
	struct disk_symbols_search search = {
		.recording = recording, .files = 1, .disks = disks, .disk_count = 2, .seconds = 20
	};
	struct disk_symbols_result result;
	unsigned int wanted;
	char *text;

	NEED_PERF;
	NEED_READER;
	perf_home_enter(home);
	record_deleted(home, "--buildid-mmap");
	snprintf(recording, sizeof(recording), "%s/perf.data", home);
	snprintf(disk, sizeof(disk), "%s/disk", home);

	/* The disk is not searched if there is no time left or the time limit is reached. */
	search.is_enough = is_over;
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK(result.cut_short);
	CHECK_EQUAL(result.found, 0);
	search.is_enough = NULL;
	search.seconds = 0;
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK(result.cut_short);
	CHECK_EQUAL(result.found, 0);

	/* An image that both files of the recording need is requested once. */
	search.seconds = 20;
	snprintf(second, sizeof(second), "%s.1", recording);
	CHECK(!symlink(recording, second));
	search.disk_count = 1;
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK_EQUAL(result.disks, 0);
	CHECK(!result.refused);
	CHECK(strstr(result.why, "no ext4, XFS or btrfs file system"));
	wanted = result.wanted;
	CHECK(wanted > 0);
	search.disk_count = 2;
	search.files = 2;

	/* Nothing is stored if other files fill the cache. */
	snprintf(others, sizeof(others), "%s/.debug/others", home);
	search.total_max = 1ull << 30;
	free(command_output(NULL, "mkdir -p %s/.debug; truncate -s 1G %s", home, others));
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK_EQUAL(result.disks, 1);
	CHECK_EQUAL(result.found, 0);
	CHECK(result.full);
	CHECK(!unlink(others));
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK(!result.cut_short && !result.full);
	CHECK_EQUAL(result.wanted, wanted);
	CHECK_EQUAL(result.disks, 1);
	CHECK_EQUAL(result.found, 1);
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, "hash_block"));
	free(text);

	/* The disk is not read again. */
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK_EQUAL(result.found, 0);

	search.recording = disk;
	CHECK(disk_symbols_fetch(&search, &result) < 0);
	perf_home_leave(home);
}

/* Like root after attaching to a VM: privileges belong to a thread. */
static void *search_without_privileges(void *context)
{
	struct disk_symbols_search search = *(const struct disk_symbols_search *)context;
	struct disk_symbols_result result;
	const struct disk_file place = { .path = search.disks[0] };
	struct sandbox_broker *broker;

	CHECK_EQUAL(sandbox_broker_start(&broker, guest_disk_reader(), &place, 1), 0);
	CHECK_EQUAL(rights_keep_only(NULL, 0), 0);
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK_EQUAL(result.disks, 0);
	CHECK(result.wanted && result.refused == search.disks[0]);
	search.broker = broker;
	CHECK_EQUAL(disk_symbols_fetch(&search, &result), 0);
	CHECK_EQUAL(result.disks, 1);
	CHECK_EQUAL(result.found, 1);
	sandbox_broker_end(broker);
	return NULL;
}

TEST(guest_disk_report, disk_of_another_user_is_searched_through_the_open_descriptor)
{
	char home[64], recording[96], disk[96];
	const char *const disks[] = { disk };
	struct disk_symbols_search search = {
		.recording = recording, .files = 1, .disks = disks, .disk_count = 1, .seconds = 20
	};
	pthread_t thread;
	char *text;

	NEED_PERF;
	NEED_READER;
	if (geteuid())
		SKIP("only root has privileges for other users' files that it can drop");
	perf_home_enter(home);
	record_deleted(home, "--buildid-mmap");
	snprintf(recording, sizeof(recording), "%s/perf.data", home);
	snprintf(disk, sizeof(disk), "%s/disk", home);
	CHECK(!chown(disk, 12345, 12345) && !chmod(disk, 0600) && !chmod(home, 0711));
	REQUIRE_EQUAL(pthread_create(&thread, NULL, search_without_privileges, &search), 0);
	pthread_join(thread, NULL);
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	perf_home_leave(home);
}

/* All children of PID except this shell. */
#define CHILDREN "for child in $(cat /proc/%d/task/%d/children); do [ $child != $$ ] || continue; "

/* As kvmscope attach, whose broker is stopped, so that the search waits for it. */
static _Noreturn void search_as_attach(const char *recording, const char *disk)
{
	const struct disk_file place = { .path = disk };
	struct recording_disks search = {
		.output = recording, .files = 1, .disks = &disk, .count = 1, .signal_fd = -1
	};

	if (sandbox_broker_start(&search.broker, guest_disk_reader(), &place, 1))
		_exit(1);
	free(command_output(NULL, CHILDREN "kill -STOP $child; done", getpid(), getpid()));
	if (rights_keep(NULL, 0, false))
		_exit(2);
	recording_disks_search(&search);
	sandbox_broker_end(search.broker);
	_exit(0);
}

/* Of the child of TOOL with a seccomp filter; the caller's to free. */
static char *status_of_search(pid_t tool)
{
	return command_output(
		NULL,
		"for try in $(seq 1000); do " CHILDREN
		"grep -q '^Seccomp:.2$' /proc/$child/status || continue; "
		"grep -E '^(Uid|NoNewPrivs|CapEff|CapPrm|Seccomp):' "
		"/proc/$child/status | tr '\\t\\n' '  '; exit; done; sleep 0.02; done "
		"2> /dev/null",
		tool, tool);
}

TEST(guest_disk_report, disks_are_searched_without_rights_after_attach)
{
	char home[64], recording[96], disk[96], *text;
	pid_t tool;
	int status;

	NEED_PERF;
	NEED_READER;
	if (geteuid() || SANDBOX_SANITIZED)
		SKIP("the search is confined as root, and not in builds with sanitizers");
	perf_home_enter(home);
	record_deleted(home, "--buildid-mmap");
	snprintf(recording, sizeof(recording), "%s/perf.data", home);
	snprintf(disk, sizeof(disk), "%s/disk", home);
	fflush(NULL);
	tool = fork();
	if (!tool)
		search_as_attach(recording, disk);
	text = status_of_search(tool);
	CHECK_STRING(text, "Uid: 0 0 0 0 CapPrm: 0000000000000000 CapEff: 0000000000000000 "
			   "NoNewPrivs: 1 Seccomp: 2 ");
	free(text);
	free(command_output(NULL, CHILDREN "kill -CONT $child; done", tool, tool));
	CHECK(waitpid(tool, &status, 0) == tool && !status);
	text = command_output(NULL, "build/kvmscope report -i %s/perf.data", home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	perf_home_leave(home);
}

/* The latest recording of a domain, which has HOME/disk open. */
#define LATEST "recordings/web/99991231T235959.000Z.perf.data"

/* Repeated, as by a timer. */
static void find_symbols(const char *home, const struct daemon_run *daemon)
{
	char *text;
	int status;

	text = command_output(&status,
			      "cp %s/perf.data %s/" LATEST
			      " && build/kvmscope ctl --socket %s/kvmscoped.sock names 2>&1",
			      home, daemon->directory, daemon->run);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "kvmscope: web: the guest's disks had symbols for 1 of "));
	free(text);
	text = command_output(NULL, "build/kvmscope report -i %s/" LATEST, daemon->directory);
	CHECK(strstr(text, "hash_block"));
	free(text);
	/* The other images are not on the disk and are not searched again. */
	text = command_output(&status,
			      "build/kvmscope ctl --socket %s/kvmscoped.sock names web 2>&1",
			      daemon->run);
	CHECK_EQUAL(status, 0);
	CHECK_STRING(text, "");
	free(text);
	text = command_output(&status,
			      "build/kvmscope ctl --socket %s/kvmscoped.sock names cow 2>&1",
			      daemon->run);
	CHECK_EQUAL(status, 1);
	free(text);
}

/*
 * The pending recording is converted to a profile with these symbols. It has no guest name, so
 * stores would reject it.
 */
static void push_with_symbols(struct daemon_run *daemon)
{
	char conf[256];
	int status;

	snprintf(conf, sizeof(conf),
		 "[recordings]\nrotate = 1h\n[push]\nurl = http://127.0.0.1:1\nspool = %s/push\n",
		 daemon->directory);
	CHECK_EQUAL(daemon_run_stop(daemon, SIGTERM), 0);
	daemon_run_write_conf(daemon, conf);
	free(command_output(NULL, "mv %s/" LATEST " %s/" LATEST ".new", daemon->directory,
			    daemon->directory));
	CHECK(daemon_run_start(daemon));
	free(command_output(
		&status,
		"timeout 60 sh -c 'until zcat %s/push/*.pb.gz 2> /dev/null | grep -aq hash_block; do "
		"sleep 0.1; done'",
		daemon->directory));
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(daemon_run_stop(daemon, SIGTERM), 0);
}

/* The dumped recording is the domain's latest one. */
static void dump_domain(const char *home, struct daemon_run *daemon)
{
	char *text, *path;
	int status;

	free(command_output(&status,
			    "cp %s/perf.data %s/recordings/web/99991231T235959.000Z.perf.data",
			    home, daemon->directory));
	CHECK_EQUAL(status, 0);
	free(command_output(
		&status, "build/kvmscope ctl --socket %s/kvmscoped.sock --no-disk-names dump web",
		daemon->run));
	CHECK_EQUAL(status, 0);
	text = command_output(
		NULL, "build/kvmscope report -i %s/recordings/web/99991231T235959.000Z.perf.data",
		daemon->directory);
	CHECK(strstr(text, " gone") && !strstr(text, "hash_block"));
	free(text);

	path = command_output(&status, "build/kvmscope ctl --socket %s/kvmscoped.sock dump web",
			      daemon->run);
	CHECK_EQUAL(status, 0);
	path[strcspn(path, "\n")] = '\0';
	CHECK(strstr(path, "/99991231T235959.000Z.perf.data"));
	text = command_output(NULL, "build/kvmscope report -i %s", path);
	CHECK(strstr(text, "hash_block"));
	free(text);
	free(path);
	/* The other sampled images are not on that disk. */
	text = command_output(&status,
			      "build/kvmscope ctl --socket %s/kvmscoped.sock dump web 2>&1",
			      daemon->run);
	CHECK(strstr(text, " user-space images that lack some\n"));
	free(text);
	/* The symbols come from the domain's disk. */
	free(command_output(&status, "! find %s/.debug -type f 2> /dev/null | grep .", home));
	CHECK_EQUAL(status, 0);
}

/* With a domain that has HOME/disk open. */
static void with_domain(void (*use)(const char *home, struct daemon_run *daemon))
{
	char home[64], disk[96];
	struct daemon_run daemon;
	struct program vm;
	int fd;

	NEED_PERF;
	NEED_READER;
	GUEST_REQUIRED();
	perf_home_enter(home);
	record_deleted(home, "--buildid-mmap");
	snprintf(disk, sizeof(disk), "%s/disk", home);
	daemon_run_prepare(&daemon, "[domains]\nbackend = perf\n[recordings]\nrotate = 1h\n");
	if (daemon_run_start(&daemon)) {
		fd = open(disk, O_RDONLY); /* NOLINT(android-cloexec-open): the VM inherits it */
		fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE("frequency='999'"));
		close(fd);
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 20));
		use(home, &daemon);
		CHECK(fake_domain_kill(&vm));
	}
	daemon_run_end(&daemon);
	perf_home_leave(home);
}

TEST(guest_disk_report, dumped_domain_recording_has_symbols_from_its_disks)
{
	with_domain(dump_domain);
}

static void find_and_push(const char *home, struct daemon_run *daemon)
{
	find_symbols(home, daemon);
	push_with_symbols(daemon);
}

TEST(guest_disk_report, pushed_domain_profile_has_symbols_from_its_disks)
{
	with_domain(find_and_push);
}
