/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live migration of a KVM guest between two QEMUs on this machine, with kvmscope attached to both
 * from the start: the first sees the guest as long as it runs there, the second from then on. The
 * guest is that of migrated_guest.h.
 */
#include <jansson.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/migrated_guest.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/qmp_connection.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

/* A QEMU, and the kvmscope that is attached to it. */
struct side {
	char serial[96], monitor[96], recording[96];
	pid_t qemu;
	struct qmp *qmp;
	struct program tool;
};

static char directory[40];
static const struct migrated_guest *guest;

/* The machine types that these guests support. */
static const char *machine(void)
{
	return guest->initrd ? "pc" : "microvm,pit=on,pic=on,rtc=on,isa-serial=on";
}

_Noreturn static void become_qemu(const struct side *side, const char *incoming)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"exec qemu-system-x86_64 -accel kvm -cpu host,arch-capabilities=off -machine %s -name guest,debug-threads=on -m 128 "
		"-nodefaults -no-user-config -display none -serial file:%s -qmp unix:%s,server=on,wait=off "
		"-no-reboot -kernel %s -append '%s' %s %s %s %s",
		machine(), side->serial, side->monitor, guest->kernel, guest->command_line,
		guest->initrd ? "-initrd" : "", guest->initrd ? guest->initrd : "",
		incoming ? "-incoming" : "", incoming ? incoming : "");
	alarm(290); /* its time limit, in case the test does not end it */
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static void start_qemu(struct side *side, const char *name, const char *incoming)
{
	snprintf(side->serial, sizeof(side->serial), "%s/%s.serial", directory, name);
	snprintf(side->monitor, sizeof(side->monitor), "%s/%s.qmp", directory, name);
	snprintf(side->recording, sizeof(side->recording), "%s/%s.data", directory, name);
	fflush(NULL);
	side->qemu = fork();
	if (!side->qemu)
		become_qemu(side, incoming);
}

static bool has_ended(const struct side *side)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)side->qemu, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

static bool has_printed(const char *path, const char *text)
{
	FILE *file = fopen(path, "re");
	char output[65536];

	if (!file)
		return false;
	output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
	fclose(file);
	return strstr(output, text);
}

/* Waits until SIDE's guest prints it. Returns false if QEMU has ended, or after a minute. */
static bool wait_until_it_works(const struct side *side)
{
	for (int tries = 0; tries < 3000 && !has_ended(side); tries++) {
		if (has_printed(side->serial, guest->banner))
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

	snprintf(arguments, sizeof(arguments), "attach --pid %d -F 999 -o %s", side->qemu,
		 side->recording);
	program_start(&side->tool, arguments);
	if (program_wait_for(&side->tool, "attached to process"))
		return true;
	FAIL_TEST("kvmscope %s: %s", arguments, side->tool.text);
	return false;
}

/* "status" in the answer to COMMAND. */
static bool status_is(struct side *side, const char *command, const char *expected)
{
	json_t *result = NULL;
	const char *status;
	bool is;

	if (qmp_execute(side->qmp, command, NULL, &result))
		return false;
	status = json_string_value(json_object_get(result, "status"));
	is = status && !strcmp(status, expected);
	json_decref(result);
	return is;
}

static bool wait_for_status(struct side *side, const char *command, const char *expected)
{
	for (int tries = 0; tries < 3000 && !has_ended(side); tries++) {
		if (status_is(side, command, expected))
			return true;
		usleep(20000);
	}
	FAIL_TEST("%s is not %s", command, expected);
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

/* The samples of the guest in a recording. */
struct seen {
	struct symbols *symbols;     /* NULL: samples are only counted */
	uint64_t samples, elsewhere; /* of these, outside the guest's program */
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
	if (!guest->initrd)
		REQUIRE_EQUAL(elf_symbols_load(&seen->symbols, guest->kernel, ELF_VIRTUAL_ADDRESSES,
					       (struct span){ 0 }),
			      0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	symbols_free(seen->symbols);
}

/* The recording is being written, and may not even have its header yet. */
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

/*
 * Waits until SIDE's recording has samples of the guest. Returns false if SIDE's QEMU has ended, or
 * after a minute.
 */
static bool wait_for_guest(const struct side *side)
{
	for (int tries = 0; tries < 300 && !has_ended(side); tries++) {
		if (has_guest(side->recording))
			return true;
		usleep(200000);
	}
	return false;
}

/* Both are on one machine, so their times are of one clock. */
static void check_recordings(const struct side *from, const struct side *to)
{
	struct seen before, after;

	read_recording(from->recording, &before);
	read_recording(to->recording, &after);
	printf("%llu samples before, %llu after, %.1f ms between them\n",
	       (unsigned long long)before.samples, (unsigned long long)after.samples,
	       ((double)after.first - (double)before.last) / 1e6);
	CHECK(before.samples > 0);
	CHECK(after.samples > 0);
	CHECK_EQUAL(before.elsewhere + after.elsewhere, 0);
	CHECK(before.last < after.first);
	if (!guest->initrd)
		return;
	migrated_guest_check_names(from->recording);
	migrated_guest_check_names(to->recording);
}

static void end_qemu(struct side *side)
{
	qmp_close(side->qmp);
	kill(side->qemu, SIGKILL);
	waitpid(side->qemu, NULL, 0);
}

/*
 * The process that the guest has left ends, as with libvirt, and the kvmscope attached to it ends
 * with it.
 */
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

	GUEST_REQUIRED();
	guest = migrated_guest();
	snprintf(directory, sizeof(directory), "/tmp/kvmscope-migration-XXXXXX");
	REQUIRE(mkdtemp(directory) != NULL);
	program_set_home(directory); /* in the build-id cache */
	snprintf(uri, sizeof(uri), "unix:%s/migration", directory);
	start_qemu(&from, "from", NULL);
	works = wait_until_it_works(&from);
	if (works) {
		start_qemu(&to, "to", uri);
		follow(&from, &to, uri);
		end_qemu(&to);
	}
	end_qemu(&from);
	program_set_home(NULL);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	if (!works)
		SKIP("qemu-system-x86_64 does not run this guest with KVM here");
}
