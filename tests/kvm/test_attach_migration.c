// SPDX-License-Identifier: Apache-2.0
/*
 * Live migration of a guest of KVM from one QEMU to another, both on this machine's KVM, with kvmscope
 * attached to each from before it begins: the one has the guest as long as it runs there, the other from then
 * on.
 */
#include <jansson.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/qmp.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/perf_data_reader.h"

/* A QEMU, and who is attached to it. */
struct side {
	char serial[96], monitor[96], recording[96];
	pid_t qemu;
	struct qmp *qmp;
	struct program tool;
};

static char directory[40];

static void start_qemu(struct side *side, const char *name, const char *incoming)
{
	char serial[128], monitor[160];

	snprintf(side->serial, sizeof(side->serial), "%s/%s.serial", directory, name);
	snprintf(side->monitor, sizeof(side->monitor), "%s/%s.qmp", directory, name);
	snprintf(side->recording, sizeof(side->recording), "%s/%s.data", directory, name);
	snprintf(serial, sizeof(serial), "file:%s", side->serial);
	snprintf(monitor, sizeof(monitor), "unix:%s,server=on,wait=off", side->monitor);
	fflush(NULL);
	side->qemu = fork();
	if (!side->qemu) {
		alarm(290); /* it ends by that if the test does not end it */
		execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host",
		       "-machine", "microvm,pit=on,pic=on,rtc=on,isa-serial=on", "-name",
		       "guest,debug-threads=on", "-m", "64", "-nodefaults", "-no-user-config", "-display",
		       "none", "-serial", serial, "-qmp", monitor, "-no-reboot", "-kernel",
		       GUEST_IMAGE_MULTIBOOT, "-append", "program=shares rounds=1000000",
		       incoming ? "-incoming" : NULL, incoming, NULL);
		_exit(127);
	}
}

static bool has_ended(const struct side *side)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)side->qemu, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

/* Until SIDE's guest has said something; false: its QEMU has ended, or it takes a minute. */
static bool wait_until_it_works(const struct side *side)
{
	struct stat status;

	for (int tries = 0; tries < 3000 && !has_ended(side); tries++) {
		if (!stat(side->serial, &status) && status.st_size)
			return true;
		usleep(20000);
	}
	return false;
}

static bool connect_to(struct side *side)
{
	pid_t peer;

	for (int tries = 0; tries < 3000 && !has_ended(side); tries++) {
		if (!qmp_open(&side->qmp, side->monitor, -1, &peer))
			return true;
		usleep(20000);
	}
	FAIL_TEST("QEMU's monitor: %s", error_message());
	return false;
}

static bool attach(struct side *side)
{
	char arguments[256];

	snprintf(arguments, sizeof(arguments), "attach --pid %d -F 999 --no-buildid-cache -o %s", side->qemu,
		 side->recording);
	program_start(&side->tool, arguments);
	if (program_wait_for(&side->tool, "attached to process"))
		return true;
	FAIL_TEST("kvmscope %s: %s", arguments, side->tool.text);
	return false;
}

/* "status" of what COMMAND tells. */
static bool status_is(struct side *side, const char *command, const char *wanted)
{
	json_t *result = NULL;
	const char *status;
	bool is;

	if (qmp_execute(side->qmp, command, NULL, &result))
		return false;
	status = json_string_value(json_object_get(result, "status"));
	is = status && !strcmp(status, wanted);
	json_decref(result);
	return is;
}

static bool wait_for_status(struct side *side, const char *command, const char *wanted)
{
	for (int tries = 0; tries < 3000 && !has_ended(side); tries++) {
		if (status_is(side, command, wanted))
			return true;
		usleep(20000);
	}
	FAIL_TEST("%s is not %s", command, wanted);
	return false;
}

static bool migrate(struct side *from, struct side *to, const char *uri)
{
	json_t *result = NULL;

	if (qmp_execute(from->qmp, "migrate", json_pack("{s:s}", "uri", uri), &result)) {
		FAIL_TEST("%s", error_message());
		return false;
	}
	json_decref(result);
	return wait_for_status(from, "query-migrate", "completed") &&
	       wait_for_status(to, "query-status", "running");
}

/* What a recording has of the guest. */
struct seen {
	struct symbols *symbols;     /* NULL: samples are only counted */
	uint64_t samples, elsewhere; /* of these, not in the guest's program */
	uint64_t first, last;        /* ns */
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;
	struct symbol symbol;

	if (sample->misc == PERF_RECORD_MISC_HYPERVISOR)
		return 0;
	if (!seen->samples++)
		seen->first = sample->time;
	seen->last = sample->time;
	seen->elsewhere += seen->symbols && !symbols_find(seen->symbols, sample->ip, &symbol);
	return 0;
}

static void read_recording(const char *path, struct seen *seen)
{
	const struct perf_data_events events = { .sample = see_sample, .context = seen };
	struct perf_data_reader *reader;

	*seen = (struct seen){ 0 };
	REQUIRE_EQUAL(elf_symbols_load(&seen->symbols, GUEST_IMAGE_MULTIBOOT, ELF_VIRTUAL_ADDRESSES, NULL, 0),
		      0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	symbols_free(seen->symbols);
}

/* The recording is written meanwhile, and may not even have its header yet. */
static bool has_guest(const char *path)
{
	struct seen seen = { 0 };
	const struct perf_data_events events = { .sample = see_sample, .context = &seen };
	struct perf_data_reader *reader;

	if (perf_data_reader_open(&reader, path))
		return false;
	perf_data_reader_run(reader, &events);
	perf_data_reader_close(reader);
	return seen.samples;
}

/* Until SIDE's recording has samples of the guest; false: SIDE's QEMU has ended, or it takes a minute. */
static bool wait_for_guest(const struct side *side)
{
	for (int tries = 0; tries < 300 && !has_ended(side); tries++) {
		if (has_guest(side->recording))
			return true;
		usleep(200000);
	}
	return false;
}

/* One clock serves both: they are of one machine. */
static void check_recordings(const struct side *from, const struct side *to)
{
	struct seen there, here;

	read_recording(from->recording, &there);
	read_recording(to->recording, &here);
	printf("%llu samples there, %llu here, %.1f ms between them\n", (unsigned long long)there.samples,
	       (unsigned long long)here.samples, ((double)here.first - (double)there.last) / 1e6);
	CHECK(there.samples > 0);
	CHECK(here.samples > 0);
	CHECK_EQUAL(there.elsewhere + here.elsewhere, 0);
	CHECK(there.last < here.first);
}

static void end_qemu(struct side *side)
{
	qmp_close(side->qmp);
	kill(side->qemu, SIGKILL);
	waitpid(side->qemu, NULL, 0);
}

/* The process that the guest has left ends, as libvirt has it do; who is attached to it ends with it. */
static void follow(struct side *from, struct side *to, const char *uri)
{
	if (!attach(from) || !attach(to) || !connect_to(from) || !connect_to(to))
		return;
	CHECK(wait_for_guest(from));
	if (!migrate(from, to, uri))
		return;
	CHECK(wait_for_guest(to));
	kill(from->qemu, SIGKILL);
	program_wait(&from->tool);
	CHECK_EQUAL(from->tool.status, 0);
	CHECK(strstr(from->tool.text, "the VM has ended"));
	kill(to->tool.pid, SIGINT);
	program_wait(&to->tool);
	CHECK_EQUAL(to->tool.status, 0);
	check_recordings(from, to);
}

TEST(attach_migration, a_guest_of_kvm_is_followed_out_and_in)
{
	struct side from = { 0 }, to = { 0 };
	char command[128], uri[96];
	bool works;

	if (!guest_run_possible())
		SKIP("/dev/kvm can not be opened");
	snprintf(directory, sizeof(directory), "/tmp/kvmscope-migration-XXXXXX");
	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(uri, sizeof(uri), "unix:%s/migration", directory);
	start_qemu(&from, "from", NULL);
	works = wait_until_it_works(&from);
	if (works) {
		start_qemu(&to, "to", uri);
		follow(&from, &to, uri);
		end_qemu(&to);
	}
	end_qemu(&from);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	if (!works)
		SKIP("qemu-system-x86_64 does not run this guest with KVM here");
}
