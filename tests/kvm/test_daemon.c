/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscoped with VMs of our own in place of libvirt's domains. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/kvm_tracepoint.h"
#include "vmm/control/control_client.h"
#include "vmm/perf_data/perf_data_reader.h"

#define BY_PERF "[domains]\nbackend = perf\nfrequency = 999\nfrequency-max = 5000\n"

/* Files of DOMAIN whose names end with SUFFIX. */
static unsigned int count_files(const struct daemon_run *daemon, const char *domain,
				const char *suffix)
{
	const struct dirent *entry;
	unsigned int count = 0;
	char path[256];
	DIR *directory;

	snprintf(path, sizeof(path), "%s/recordings/%s", daemon->directory, domain);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		size_t length = strlen(entry->d_name), end = strlen(suffix);

		count += length >= end && !strcmp(entry->d_name + length - end, suffix);
	}
	if (directory)
		closedir(directory);
	return count;
}

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	++*(uint64_t *)context;
	return 0;
}

static uint64_t count_samples(const char *path)
{
	uint64_t samples = 0;
	const struct perf_data_events events = { .sample = count_sample, .context = &samples };
	struct perf_data_reader *reader;

	if (perf_data_reader_open(&reader, path))
		return 0;
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	return samples;
}

TEST(daemon, domains_that_ask_are_profiled_for_as_long_as_they_run)
{
	struct program web, db;
	struct daemon_run daemon;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&db, &daemon, "db", "");
	if (daemon_run_start(&daemon)) {
		fake_domain_start(&web, &daemon, "web", FAKE_PROFILE(""));
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 50));
		CHECK(daemon_run_wait_for_domains(&daemon, 1)); /* not db */
		/* Turned on and off, as by virsh metadata --live. */
		fake_domain_write(&daemon, "db", db.pid, FAKE_PROFILE("frequency='2000'"));
		CHECK(daemon_run_wait_for_samples(&daemon, "db", 50));
		fake_domain_write(&daemon, "db", db.pid, "");
		CHECK(daemon_run_wait_for_domains(&daemon, 1));
		CHECK(fake_domain_kill(&web)); /* it continued up to this point */
		CHECK(daemon_run_wait_for_domains(&daemon, 0));
		CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
		CHECK(count_files(&daemon, "web", ".perf.data") >= 1);
		CHECK_EQUAL(count_files(&daemon, "web", ".partial"), 0);
		CHECK_EQUAL(count_files(&daemon, "db", ".partial"), 0);
	}
	CHECK(fake_domain_kill(&db));
	daemon_run_end(&daemon);
}

static int count_outside(void *context, const struct perf_data_sample *sample)
{
	*(uint64_t *)context += sample->event != 0;
	return 0;
}

/* Waits until the present file of DOMAIN has a sample of its second event. */
static bool has_outside_samples(const struct daemon_run *daemon, const char *domain)
{
	uint64_t samples = 0;
	const struct perf_data_events events = { .sample = count_outside, .context = &samples };

	for (int i = 0; i < 600 && !samples; i++) {
		json_t *answer =
			daemon_run_ask(daemon, "domain-dump", json_pack("{s:s}", "domain", domain));
		const char *file = json_string_value(json_object_get(answer, "file"));
		struct perf_data_reader *reader;

		if (file && !perf_data_reader_open(&reader, file)) {
			perf_data_reader_run(reader, &events);
			perf_data_reader_close(reader);
		}
		json_decref(answer);
		usleep(50000);
	}
	return samples;
}

/* Exits, where the host's KVM reports them. */
TEST(daemon, a_domain_has_the_events_that_it_requests_or_the_log_has_the_reason)
{
	struct program web, db;
	struct daemon_run daemon;
	struct kvm_exit_tracepoint tracepoint;
	bool missing = kvm_exit_tracepoint_find(&tracepoint) || !tracepoint.rip;
	char *log;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, "[domains]\nfrequency = 999\n");
	fake_domain_start(&web, &daemon, "web", FAKE_PROFILE("event='cpu-clock,kvm:exit'"));
	fake_domain_start(&db, &daemon, "db", FAKE_PROFILE(""));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 50));
		CHECK(daemon_run_wait_for_samples(&daemon, "db", 50));
		CHECK(missing || has_outside_samples(&daemon, "web"));
		log = daemon_run_log(&daemon);
		CHECK_EQUAL(!!strstr(log, "domain web: sampled without kvm:exit"), missing);
		CHECK(!strstr(log, "domain db: sampled without"));
		free(log);
	}
	CHECK(fake_domain_kill(&web));
	CHECK(fake_domain_kill(&db));
	daemon_run_end(&daemon);
}

/*
 * Something writes to the directory all the time. An earlier flight recording is not mistaken for a
 * current recording.
 */
TEST(daemon, a_busy_directory_of_libvirt_is_scanned)
{
	char path[512], arguments[256];
	struct program web, tool;
	struct daemon_run daemon;
	pid_t writer;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	snprintf(path, sizeof(path), "%s/busy", daemon.libvirt);
	writer = fork();
	if (!writer)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!writer) {
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		usleep(10000);
	}
	if (daemon_run_start(&daemon)) {
		fake_domain_start(&web, &daemon, "web", FAKE_PROFILE(""));
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 50));
		snprintf(path, sizeof(path), "%s/recordings/web/flight-1.perf.data",
			 daemon.directory);
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); /* an earlier one */
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 0);
		CHECK(strstr(tool.text, ".perf.data") && !strstr(tool.text, "flight-1"));
		CHECK(fake_domain_kill(&web));
	}
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	daemon_run_end(&daemon);
}

/* Each file of an idle VM is empty, and is removed when it expires. */
TEST(daemon, a_file_without_samples_is_not_reported)
{
	struct program vm, tool;
	struct daemon_run daemon;
	char arguments[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE(""));
	if (daemon_run_start(&daemon)) {
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
			 daemon.run);
		program_run(&tool, arguments); /* waits for the first samples */
		CHECK_EQUAL(tool.status, 0);
		kill(vm.pid, SIGSTOP);
		for (int looks = 0; looks < 60; looks++) { /* during which several files are
							    * started */
			json_t *answer =
				daemon_run_ask(&daemon, looks % 2 ? "domain-status" : "domain-dump",
					       json_pack("{s:s}", "domain", "web"));
			const char *file = json_string_value(json_object_get(answer, "file"));

			CHECK(file && count_samples(file) > 0);
			json_decref(answer);
			usleep(50000);
		}
		kill(vm.pid, SIGCONT);
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

/* The PID now belongs to another process. */
TEST(daemon, a_domain_left_over_by_a_crash_is_ignored)
{
	struct daemon_run daemon;
	struct program vm;
	char path[256];
	FILE *file;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE(""));
	snprintf(path, sizeof(path), "%s/gone.pid", daemon.libvirt);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	fprintf(file, "%d\n", vm.pid); /* but the process does not hold the lock on it */
	fclose(file);
	fake_domain_write(&daemon, "gone", vm.pid, FAKE_PROFILE(""));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 20));
		CHECK(daemon_run_wait_for_domains(&daemon, 1));
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

TEST(daemon, restarted_after_a_kill_it_finds_its_running_domains)
{
	struct daemon_run daemon;
	struct program vm;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE(""));
	for (int i = 0; i < 3; i++) {
		CHECK(daemon_run_start(&daemon));
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 20));
		CHECK_EQUAL(daemon_run_stop(&daemon, i == 2 ? SIGTERM : SIGKILL),
			    i == 2 ? 0 : 128 + SIGKILL);
	}
	CHECK(fake_domain_kill(&vm));
	CHECK_EQUAL(count_files(&daemon, "web", ".partial"),
		    0); /* those of the killed daemon were taken over */
	CHECK(count_files(&daemon, "web", ".perf.data") >= 3);
	daemon_run_end(&daemon);
}

TEST(daemon, a_valid_new_configuration_is_applied)
{
	struct daemon_run daemon;
	struct program vm;
	char *log = NULL;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, "");
	fake_domain_start(&vm, &daemon, "web", "");
	if (daemon_run_start(&daemon)) {
		daemon_run_write_conf(&daemon, BY_PERF "[domain we?]\nprofile = on\n");
		kill(daemon.pid, SIGHUP);
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 20));
		daemon_run_write_conf(&daemon, "[domains]\nprofile = offf\n");
		kill(daemon.pid, SIGHUP);
		for (int i = 0; i < 1200; i++) {
			log = daemon_run_log(&daemon);
			if (strstr(log, "the configuration is unchanged"))
				break;
			free(log);
			log = NULL;
			usleep(50000);
		}
		CHECK(log && strstr(log, "kvmscope.conf, line 8: profile is 'offf'"));
		free(log);
		CHECK(daemon_run_wait_for_domains(&daemon, 1));
		daemon_run_write_conf(&daemon, "");
		kill(daemon.pid, SIGHUP);
		CHECK(daemon_run_wait_for_domains(&daemon, 0));
		CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

/* The protocol of sd_notify(3). */
TEST(daemon, systemd_is_notified_of_start_and_end)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval patience = { .tv_sec = 60 };
	struct daemon_run daemon;
	char text[64] = "";
	int fd;

	daemon_run_prepare(&daemon, "");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", daemon.directory);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0 && !bind(fd, (const struct sockaddr *)&address, sizeof(address)));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	daemon_run_launch(&daemon);
	unsetenv("NOTIFY_SOCKET");
	CHECK(recv(fd, text, sizeof(text) - 1, 0) > 0);
	CHECK_STRING(text, "READY=1");
	memset(text, 0, sizeof(text));
	CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	CHECK(recv(fd, text, sizeof(text) - 1, 0) > 0);
	CHECK_STRING(text, "STOPPING=1");
	close(fd);
	daemon_run_end(&daemon);
}

/* Only the unit's capabilities, in all of its threads and in all sets, whoever starts it. */
static uint64_t rights_of(pid_t pid, const char *thread, const char *which)
{
	char path[300], line[256], name[32];
	unsigned long long rights = UINT64_MAX;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, thread);
	snprintf(name, sizeof(name), "%s:\t%%llx", which);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file) && sscanf(line, name, &rights) != 1)
		;
	if (file)
		fclose(file);
	return rights;
}

TEST(daemon, keeps_only_the_rights_of_its_unit)
{
	const uint64_t kept = 1ull << CAP_PERFMON | 1ull << CAP_BPF | 1ull << CAP_SYS_PTRACE |
			      1ull << CAP_DAC_OVERRIDE | 1ull << CAP_SYS_ADMIN;
	struct daemon_run daemon;
	unsigned int threads = 0;
	char path[64], own[16];
	const struct dirent *entry;
	DIR *tasks;

	snprintf(own, sizeof(own), "%d", getpid());
	daemon_run_prepare(&daemon, "");
	if (daemon_run_start(&daemon)) {
		snprintf(path, sizeof(path), "/proc/%d/task", daemon.pid);
		tasks = opendir(path);
		while (tasks && (entry = readdir(tasks))) {
			if (*entry->d_name == '.')
				continue;
			threads++;
			CHECK_EQUAL(rights_of(daemon.pid, entry->d_name, "CapPrm") & ~kept, 0);
			CHECK_EQUAL(rights_of(daemon.pid, entry->d_name, "CapEff") & ~kept, 0);
			if (rights_of(getpid(), own, "CapEff") & 1ull << CAP_SETPCAP)
				CHECK_EQUAL(rights_of(daemon.pid, entry->d_name, "CapBnd") & ~kept,
					    0);
			CHECK_EQUAL(rights_of(daemon.pid, entry->d_name, "NoNewPrivs"), 1);
		}
		if (tasks)
			closedir(tasks);
		CHECK(threads > 1);
	}
	daemon_run_end(&daemon);
}

TEST(daemon, a_run_directory_belongs_to_one_daemon)
{
	struct daemon_run daemon;
	char *log;
	pid_t first;

	daemon_run_prepare(&daemon, "");
	CHECK(daemon_run_start(&daemon));
	first = daemon.pid;
	daemon_run_launch(&daemon);
	CHECK_EQUAL(daemon_run_stop(&daemon, 0), 1);
	log = daemon_run_log(&daemon);
	CHECK(strstr(log, "another kvmscoped is running"));
	free(log);
	daemon.pid = first;
	CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	daemon_run_end(&daemon);
}

TEST(daemon, names_and_xml_of_domains_are_hostile)
{
	static const char *const names[] = { "a b", "$(reboot)", "\033[31mred",
					     "..x", "-rf",       "new\nline" };
	struct program vms[sizeof(names) / sizeof(names[0])];
	size_t count = sizeof(names) / sizeof(names[0]);
	struct daemon_run daemon;
	json_t *list, *domain;
	size_t i;
	char *log;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	for (i = 0; i < count; i++)
		fake_domain_start(&vms[i], &daemon, names[i], FAKE_PROFILE("frequency='500'"));
	fake_domain_write(&daemon, "broken", 1, "<unclosed>");
	fake_domain_write(&daemon, "bomb", 1, "&lol;");
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_domains(&daemon, count - 1)); /* an escape sequence is not
									 * valid XML */
		list = daemon_run_ask(&daemon, "domains", NULL);
		json_array_foreach(json_object_get(list, "domains"), i, domain)
		{
			const char *name = json_string_value(json_object_get(domain, "domain"));

			for (const char *at = name; *at; at++)
				if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEF0123456789-_.%", *at))
					FAIL_TEST("a domain is shown as '%s'", name);
		}
		json_decref(list);
		CHECK(daemon_run_wait_for_samples(&daemon, "$(reboot)", 5));
		CHECK(daemon_run_wait_for_samples(&daemon, "%24%28reboot%29", 5));
	}
	CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	log = daemon_run_log(&daemon);
	CHECK(!strchr(log, '\033'));
	CHECK(!strstr(log, "\nline"));
	free(log);
	for (i = 0; i < count; i++)
		CHECK(fake_domain_kill(&vms[i]));
	daemon_run_end(&daemon);
}

/* Samples are counted some time before they are in the file. A reader would find none. */
TEST(daemon, the_first_dump_of_a_domain_has_samples)
{
	struct program vm, tool;
	struct daemon_run daemon;
	char arguments[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	if (daemon_run_start(&daemon)) {
		fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE(""));
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 0);
		REQUIRE(strrchr(tool.text, '/'));
		tool.text[strlen(tool.text) - 1] = '\0';
		CHECK(count_samples(strchr(tool.text, '/')) > 0);
		CHECK(fake_domain_kill(&vm));
	}
	daemon_run_end(&daemon);
}

TEST(daemon, a_flight_recorder_is_dumped_by_kvmscope_ctl)
{
	struct program vm, tool;
	struct daemon_run daemon;
	char arguments[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE("flight='5s'"));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 100));
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 0);
		tool.text[strcspn(tool.text, "\n")] = '\0';
		CHECK(count_samples(tool.text) >= 50);
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock status web",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 0);
		CHECK(strstr(tool.text, "sampling by perf at 999 Hz"));
		CHECK(strstr(tool.text, "flight:   1 recordings"));
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock status cow",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 1);
		CHECK(strstr(tool.text, "no running domain has that name"));
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

/* Waits until the metrics, at metrics.sock, have LINE or do not have it. */
static bool await_metric(const struct daemon_run *daemon, const char *line, bool there)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	bool found = !there;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/metrics.sock", daemon->directory);
	for (unsigned int i = 0; i < 1200 && found != there; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		char text[65536] = "";

		if (!connect(fd, (const void *)&address, sizeof(address)) &&
		    send(fd, request, strlen(request), MSG_NOSIGNAL) > 0 &&
		    recv(fd, text, sizeof(text) - 1, MSG_WAITALL) > 0)
			found = strstr(text, line);
		close(fd);
		usleep(50000);
	}
	return found == there;
}

/* An alert compares domains that are requested with those that are sampled. */
TEST(daemon, metrics_have_a_domain_that_cannot_be_sampled)
{
	static const char requested[] = "\nkvmscope_domain_requested{domain=\"odd\"} 1\n";
	struct daemon_run daemon;
	struct program process;
	char conf[256];

	daemon_run_prepare(&daemon, "");
	snprintf(conf, sizeof(conf), BY_PERF "[metrics]\nlisten = %s/metrics.sock\n",
		 daemon.directory);
	daemon_run_write_conf(&daemon, conf);
	fake_domain_start_without_vm(&process, &daemon, "odd", FAKE_PROFILE(""));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_log(&daemon, "domain odd cannot be profiled now"));
		CHECK(await_metric(&daemon, requested, true));
		CHECK(await_metric(&daemon, "kvmscope_domain_sampled{", false));
		fake_domain_write(&daemon, "odd", process.pid, ""); /* no longer requested */
		CHECK(await_metric(&daemon, requested, false));
		CHECK(await_metric(&daemon, "kvmscope_lost_samples_total{domain=\"odd\"} 0\n",
				   true));
	}
	CHECK(fake_domain_kill(&process));
	daemon_run_end(&daemon);
}

/* That domain's profile may still start, so the command waits for it. */
TEST(daemon, an_unprofiled_domain_is_distinguished_from_one_that_is_not_running)
{
	static const struct {
		const char *domain;
		int error;
	} asked[] = { { "quiet", -ENODATA }, { "cow", -ENOENT }, { "../cow", -ENOENT } };
	struct daemon_run daemon;
	struct program vm;
	char path[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	fake_domain_start(&vm, &daemon, "quiet", "");
	if (daemon_run_start(&daemon)) {
		snprintf(path, sizeof(path), "%s/kvmscoped.sock", daemon.run);
		for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
			json_t *arguments = json_pack("{s:s}", "domain", asked[i].domain),
			       *answer = NULL;
			int fd = control_connect(path);

			CHECK(fd >= 0);
			CHECK_EQUAL(control_call(fd, "domain-status", arguments, &answer),
				    asked[i].error);
			json_decref(answer);
			json_decref(arguments);
			close(fd);
		}
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

/* Waits until the status of DOMAIN has TEXT. */
static bool reports(const struct daemon_run *daemon, const char *domain, const char *text)
{
	struct program tool = { 0 };
	bool reported = false;
	char arguments[256];

	snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock status %s",
		 daemon->run, domain);
	for (int i = 0; i < 600 && !reported; i++) {
		usleep(50000);
		program_run(&tool, arguments);
		reported = strstr(tool.text, text);
	}
	return reported;
}

TEST(daemon, a_flight_recorder_has_the_memory_that_the_host_allows_and_no_further_events)
{
	struct program web, db;
	struct daemon_run daemon;

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF "flight-memory-max = 64K\n");
	fake_domain_start(&web, &daemon, "web", FAKE_PROFILE("flight='10min'"));
	fake_domain_start(&db, &daemon, "db", FAKE_PROFILE("flight='30s' event='kvm:exit'"));
	if (daemon_run_start(&daemon)) {
		CHECK(reports(&daemon, "web", "flight-memory-max"));
		CHECK(reports(&daemon, "db", "kvm:off-cpu exclude flight"));
	}
	CHECK(fake_domain_kill(&web));
	CHECK(fake_domain_kill(&db));
	daemon_run_end(&daemon);
}

/* A flight recording does not use the reserve either. No disk has this much free space. */
TEST(daemon, a_flight_recording_leaves_others_their_reserve)
{
	struct program vm, tool;
	struct daemon_run daemon;
	char arguments[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF "[recordings]\nreserve = 1000000G\n");
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE("flight='5s'"));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 100));
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock dump web",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 1);
		CHECK(strstr(tool.text, "recordings has no space"));
		CHECK_EQUAL(count_files(&daemon, "web", ".perf.data"), 0);
		CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	}
	CHECK(fake_domain_kill(&vm));
	daemon_run_end(&daemon);
}

/*
 * Puts a file system of 1 MiB in place of the recordings' directory. A file of another program
 * takes all but 64 KiB.
 */
TEST(daemon, a_full_disk_does_no_harm)
{
	struct program vm;
	struct daemon_run daemon;
	char path[128], command[256];

	GUEST_REQUIRED();
	daemon_run_prepare(&daemon, BY_PERF);
	snprintf(path, sizeof(path), "%s/recordings", daemon.directory);
	snprintf(command, sizeof(command), "mkdir -m 700 %s", path);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	if (mount("none", path, "tmpfs", 0, "size=1m,mode=0700")) {
		daemon_run_end(&daemon);
		SKIP("mounting a file system requires root");
	}
	snprintf(command, sizeof(command), "head -c 983040 /dev/zero > %s/others", path);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	fake_domain_start(&vm, &daemon, "web", FAKE_PROFILE("frequency='5000'"));
	if (daemon_run_start(&daemon)) {
		CHECK(daemon_run_wait_for_samples(&daemon, "web", 5000)); /* far more than fit */
		CHECK_EQUAL(daemon_run_stop(&daemon, SIGTERM), 0);
	}
	CHECK(fake_domain_kill(&vm));
	snprintf(command, sizeof(command), "test $(stat -c %%s %s/others) = 983040", path);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	CHECK(!umount(path));
	daemon_run_end(&daemon);
}
