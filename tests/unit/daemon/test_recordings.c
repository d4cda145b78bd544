/* SPDX-License-Identifier: Apache-2.0 */
/* The recordings of many domains, on disks with and without free space. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/recordings.h"
#include "vmm/perf_data/perf_data_writer.h"

#define KIB 1024u
#define MIB (1024 * KIB)

struct fixture {
	char directory[64], below[80];
	struct recordings_options options;
	struct recordings *all;
};

static void open_all(struct fixture *fixture)
{
	fixture->all = NULL;
	if (recordings_open(&fixture->all, &fixture->options)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
}

static void set_up(struct fixture *fixture)
{
	*fixture = (struct fixture){ .directory = "/tmp/kvmscope-recordings-XXXXXX" };
	if (!mkdtemp(fixture->directory))
		abort();
	snprintf(fixture->below, sizeof(fixture->below), "%s/all", fixture->directory);
	fixture->options = (struct recordings_options){ .directory = fixture->below, .rotate = 60 };
}

static void tear_down(struct fixture *fixture)
{
	char command[128];

	recordings_close(fixture->all);
	snprintf(command, sizeof(command), "rm -rf %s", fixture->directory);
	CHECK_EQUAL(system(command), 0);
}

static struct recording *add(struct fixture *fixture, const char *domain)
{
	struct recording *recording = NULL;

	if (recordings_add(fixture->all, domain, &recording)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
	return recording;
}

static void begin(struct recording *recording, char path[PATH_MAX])
{
	const struct collector_files *files = recording_files(recording);

	CHECK_EQUAL(files->begin(files->context, path, PATH_MAX), 0);
}

/* Records a file as a collector does, with SIZE bytes and SAMPLES. */
static void record(struct recording *recording, size_t size, uint64_t samples, int error)
{
	const struct collector_files *files = recording_files(recording);
	char path[PATH_MAX];
	int fd;

	begin(recording, path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
	close(fd);
	files->end(files->context, &(struct collector_file){ path, samples, error });
}

/* Number of files in the directory of RECORDING whose names end with ENDING. */
static unsigned int count_files(const char *directory, const char *ending)
{
	DIR *listed = opendir(directory);
	const struct dirent *file;
	unsigned int count = 0;

	while (listed && (file = readdir(listed))) {
		size_t length = strlen(file->d_name);

		count += length > strlen(ending) &&
			 !strcmp(file->d_name + length - strlen(ending), ending);
	}
	if (listed)
		closedir(listed);
	return count;
}

static struct recordings_statistics statistics(const struct fixture *fixture)
{
	struct recordings_statistics counts;

	recordings_statistics(fixture->all, &counts);
	return counts;
}

TEST(recordings, are_partial_until_they_are_complete)
{
	const struct collector_files *files;
	struct recording *recording;
	struct fixture fixture;
	struct stat status;
	char path[PATH_MAX];

	set_up(&fixture);
	open_all(&fixture);
	recording = add(&fixture, "web-1");
	files = recording_files(recording);
	CHECK_EQUAL(files->interval, 60000000000);
	begin(recording, path);
	CHECK(strstr(path, "/all/web-1/20") && strstr(path, "Z.perf.data.partial"));
	close(open(path, O_WRONLY | O_CREAT, 0600));
	files->end(files->context, &(struct collector_file){ path, 1, 0 });
	CHECK_EQUAL(count_files(recording_directory(recording), ".perf.data"), 1);
	CHECK_EQUAL(count_files(recording_directory(recording), ".partial"), 0);
	CHECK(!stat(recording_directory(recording), &status) && (status.st_mode & 07777) == 0700);
	CHECK(!stat(fixture.below, &status) && (status.st_mode & 07777) == 0700);

	record(recording, KIB, 0, 0); /* an idle domain: not kept */
	CHECK_EQUAL(statistics(&fixture).files, 1);
	CHECK_EQUAL(statistics(&fixture).dropped, 0);
	CHECK_EQUAL(count_files(recording_directory(recording), ".perf.data"), 1);
	recordings_remove(fixture.all, recording);
	tear_down(&fixture);
}

TEST(recordings, of_hostile_names_stay_below_their_directory)
{
	static const char *const names[] = { "..",          ".",         "",      "../../tmp/x",
					     "/etc/passwd", "new\nline", "%2E%2E" };
	struct recording *recordings[7], *none;
	struct fixture fixture;
	char long_name[1026];

	set_up(&fixture);
	open_all(&fixture);
	for (size_t i = 0; i < 7; i++) {
		recordings[i] = add(&fixture, names[i]);
		record(recordings[i], KIB, 1, 0);
		CHECK_EQUAL(count_files(recording_directory(recordings[i]), ".perf.data"), 1);
	}
	CHECK_EQUAL(count_files(fixture.below, ""), 7 + 2);
	CHECK_EQUAL(count_files(fixture.directory, ""), 1 + 2);
	memset(long_name, 'x', 1025);
	long_name[1025] = '\0';
	CHECK_EQUAL(recordings_add(fixture.all, long_name, &none), -ENAMETOOLONG);
	CHECK_EQUAL(recordings_add(fixture.all, "..", &none), -EBUSY);
	for (size_t i = 0; i < 7; i++)
		recordings_remove(fixture.all, recordings[i]);
	tear_down(&fixture);
}

TEST(recordings, the_oldest_are_removed_by_size)
{
	struct recording *one, *other;
	struct fixture fixture;

	set_up(&fixture);
	fixture.options.max_size = 10 * KIB;
	open_all(&fixture);
	one = add(&fixture, "one");
	other = add(&fixture, "other");
	for (unsigned int i = 0; i < 20; i++)
		record(one, 3 * KIB, 1, 0);
	record(other, 3 * KIB, 1, 0);
	CHECK_EQUAL(count_files(recording_directory(one), ".perf.data"), 3);
	CHECK_EQUAL(count_files(recording_directory(other), ".perf.data"), 1);
	CHECK_EQUAL(statistics(&fixture).removed, 17);
	CHECK_EQUAL(statistics(&fixture).bytes, 12 * KIB);
	record(one, 11 * KIB, 1, 0); /* even the only one */
	CHECK_EQUAL(count_files(recording_directory(one), ".perf.data"), 0);
	recordings_remove(fixture.all, one);
	recordings_remove(fixture.all, other);
	tear_down(&fixture);
}

static void make_file(const struct fixture *fixture, const char *domain, const char *name,
		      size_t size)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", fixture->below, domain, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
	close(fd);
}

TEST(recordings, of_an_earlier_daemon_are_taken_over_and_old_ones_removed)
{
	struct recording *recording;
	struct fixture fixture;
	char directory[128];

	set_up(&fixture);
	open_all(&fixture);
	recordings_remove(fixture.all, add(&fixture, "a/b"));
	recordings_close(fixture.all);
	make_file(&fixture, "a%2Fb", "20990102T030405.007Z.perf.data.partial", 100);
	make_file(&fixture, "a%2Fb", "20990102T030405.006Z.perf.data.new", 10);
	make_file(&fixture, "a%2Fb", "20200102T030405.006Z.perf.data", 1);
	make_file(&fixture, "a%2Fb", "20201302T030405.006Z.perf.data",
		  1); /* not a month: not ours */
	make_file(&fixture, "a%2Fb", "notes", 1);
	fixture.options.max_age = 86400;
	open_all(&fixture);
	snprintf(directory, sizeof(directory), "%s/a%%2Fb", fixture.below);
	CHECK_EQUAL(count_files(directory, ""),
		    2 + 2 + 2 + 1); /* with the domain's name, "." and ".." */
	CHECK_EQUAL(count_files(directory, ".partial"), 0);
	CHECK_EQUAL(statistics(&fixture).files, 2);
	CHECK_EQUAL(statistics(&fixture).bytes, 110);
	CHECK_EQUAL(statistics(&fixture).taken_over, 1);
	CHECK_EQUAL(statistics(&fixture).removed, 1);

	/* Its clock was ahead of ours: new files are still later. */
	recording = add(&fixture, "a/b");
	record(recording, 1, 1, 0);
	CHECK_EQUAL(count_files(directory, "20990102T030405.008Z.perf.data"), 0);
	recordings_remove(fixture.all, recording);
	tear_down(&fixture);
}

TEST(recordings, continue_after_their_directory_was_removed)
{
	struct recording *recording;
	struct fixture fixture;
	char directory[PATH_MAX], command[PATH_MAX + 16];

	set_up(&fixture);
	open_all(&fixture);
	recording = add(&fixture, "web");
	snprintf(directory, sizeof(directory), "%s", recording_directory(recording));
	snprintf(command, sizeof(command), "rm -r %s", directory);
	record(recording, 100, 1, 0);
	CHECK_EQUAL(system(command), 0);
	record(recording, 100, 1, 0);
	CHECK_EQUAL(count_files(directory, ".perf.data"), 1);
	recordings_remove(fixture.all, recording);
	CHECK_EQUAL(system(command), 0);
	recording = add(&fixture, "web");
	record(recording, 100, 1, 0);
	CHECK_EQUAL(count_files(directory, ".perf.data"), 1);
	recordings_remove(fixture.all, recording);
	recordings_close(fixture.all);
	open_all(&fixture); /* the directory is still a domain's */
	CHECK_EQUAL(statistics(&fixture).files, 1);
	tear_down(&fixture);
}

TEST(recordings, leave_nothing_of_a_domain_without_any)
{
	struct fixture fixture;

	set_up(&fixture);
	open_all(&fixture);
	recordings_remove(fixture.all, add(&fixture, "short-lived"));
	recordings_remove(fixture.all, add(&fixture, "with-notes"));
	make_file(&fixture, "with-notes", "notes", 1);
	CHECK_EQUAL(count_files(fixture.below, ""), 2 + 2);
	recordings_tidy(fixture.all);
	CHECK_EQUAL(count_files(fixture.below, ""), 2 + 1);
	recordings_close(fixture.all);
	open_all(&fixture); /* the notes are still in a domain's directory */
	recordings_remove(fixture.all, add(&fixture, "with-notes"));
	tear_down(&fixture);
}

static void make_symbols(struct recording *recording, size_t size)
{
	const char *directory = recording_symbols(recording)->directory;
	char command[3 * PATH_MAX];

	snprintf(
		command, sizeof(command),
		"mkdir -p %s/.build-id/ab %s/web && ln -sf ../../web %s/.build-id/ab/cd && truncate -s %zu %s/web/elf",
		directory, directory, directory, size, directory);
	CHECK_EQUAL(system(command), 0);
}

static bool may_write_symbols(struct recording *recording)
{
	const struct build_id_cache_location *names = recording_symbols(recording);

	return names->has_room(names->context);
}

TEST(recordings, symbols_are_of_one_domain_and_removed_with_its_last_recording)
{
	struct recording *web, *db;
	struct fixture fixture;

	set_up(&fixture);
	open_all(&fixture);
	web = add(&fixture, "web");
	db = add(&fixture, "db");
	CHECK(strcmp(recording_symbols(web)->directory, recording_symbols(db)->directory) != 0);
	make_symbols(web, 100);
	make_symbols(db, 100);
	make_file(&fixture, "db", "flight-1.perf.data", 1);
	recordings_tidy(fixture.all); /* they are being recorded */
	CHECK(!access(recording_symbols(web)->directory, F_OK));
	recordings_remove(fixture.all, web);
	recordings_remove(fixture.all, db);
	recordings_tidy(fixture.all);
	CHECK_EQUAL(count_files(fixture.below, ""),
		    2 + 1); /* db's, with the flight recorder's symbols */
	db = add(&fixture, "db");
	CHECK(!access(recording_symbols(db)->directory, F_OK));
	recordings_remove(fixture.all, db);
	tear_down(&fixture);
}

TEST(recordings, symbols_are_bounded)
{
	struct recording *recording;
	struct fixture fixture;
	char directory[PATH_MAX];

	set_up(&fixture);
	fixture.options.max_size = MIB;
	open_all(&fixture);
	recording = add(&fixture, "web");
	snprintf(directory, sizeof(directory), "%s", recording_directory(recording));
	record(recording, 600 * KIB, 1, 0);
	CHECK(may_write_symbols(recording));
	recordings_remove(fixture.all, recording);
	recording = add(&fixture, "web");
	make_symbols(recording, 600 * KIB);
	CHECK(!may_write_symbols(recording));
	CHECK(strstr(error_message(), "half of what it may have"));
	recordings_tidy(fixture.all); /* symbols count */
	CHECK_EQUAL(count_files(directory, ".perf.data"), 0);
	recordings_remove(fixture.all, recording);
	recordings_close(fixture.all);
	fixture.options.reserve = UINT64_MAX / 2;
	open_all(&fixture);
	recording = add(&fixture, "web");
	CHECK(!may_write_symbols(recording));
	CHECK(strstr(error_message(), "no space"));
	recordings_remove(fixture.all, recording);
	tear_down(&fixture);
}

/* Symbols of an earlier session; symbols in use count from the start of this one. */
static void make_old_build(struct recording *recording, size_t size)
{
	const char *directory = recording_symbols(recording)->directory;
	char command[3 * PATH_MAX];

	snprintf(
		command, sizeof(command),
		"mkdir -p %s/web/abcdef && truncate -s %zu %s/web/abcdef/elf && touch -d '2 days ago' "
		"%s/web/abcdef",
		directory, size, directory, directory);
	CHECK_EQUAL(system(command), 0);
}

TEST(recordings, unneeded_symbols_make_room)
{
	struct recording *recording;
	struct fixture fixture;

	set_up(&fixture);
	fixture.options.max_size = MIB;
	open_all(&fixture);
	recording = add(&fixture, "web");
	make_old_build(recording, 600 * KIB);
	CHECK(!may_write_symbols(recording));
	CHECK_EQUAL(statistics(&fixture).symbols, 600 * KIB);
	recording_prune_symbols(recording);
	CHECK_EQUAL(statistics(&fixture).symbols, 0);
	CHECK_EQUAL(statistics(&fixture).symbols_removed, 1);
	CHECK(may_write_symbols(recording));
	recordings_remove(fixture.all, recording);
	recording = add(&fixture, "web");
	make_old_build(recording, 100 * KIB);
	CHECK(may_write_symbols(recording));
	recording_prune_symbols(recording);
	CHECK_EQUAL(statistics(&fixture).symbols, 100 * KIB); /* there is space */
	recordings_remove(fixture.all, recording);
	tear_down(&fixture);
}

TEST(recordings, refuse_a_directory_that_is_not_their_own)
{
	struct fixture fixture;
	struct recordings *second;
	struct recording *recording;
	char path[128];
	struct stat status;

	set_up(&fixture);
	snprintf(path, sizeof(path), "%s/elsewhere", fixture.directory);
	CHECK_EQUAL(mkdir(path, 0755), 0);
	CHECK_EQUAL(symlink(path, fixture.below), 0);
	CHECK(recordings_open(&second, &fixture.options) < 0);
	CHECK_EQUAL(unlink(fixture.below), 0);
	if (!geteuid()) {
		CHECK_EQUAL(mkdir(fixture.below, 0700) | chown(fixture.below, 65534, 65534), 0);
		CHECK_EQUAL(recordings_open(&second, &fixture.options), -EPERM);
		CHECK_EQUAL(rmdir(fixture.below), 0);
	}
	CHECK_EQUAL(mkdir(fixture.below, 0777), 0);
	open_all(&fixture);
	CHECK(!stat(fixture.below, &status) && (status.st_mode & 07777) == 0700);
	CHECK_EQUAL(recordings_open(&second, &fixture.options), -EWOULDBLOCK); /* already locked */
	snprintf(path, sizeof(path), "%s/planted", fixture.below);
	CHECK_EQUAL(symlink("/tmp", path), 0);
	CHECK(recordings_add(fixture.all, "planted", &recording) < 0);
	tear_down(&fixture);
}

TEST(recordings, are_handed_on_in_order_and_again_after_a_restart)
{
	struct recording *one, *other;
	struct recordings_file file, again;
	struct fixture fixture;
	struct pollfd wait = { .events = POLLIN };

	set_up(&fixture);
	fixture.options.hand_on = true;
	open_all(&fixture);
	one = add(&fixture, "one");
	other = add(&fixture, "o/ther");
	wait.fd = recordings_new_fd(fixture.all);
	CHECK(!recordings_next(fixture.all, &file));
	CHECK_EQUAL(poll(&wait, 1, 0), 0);
	record(one, 1, 1, 0);
	usleep(2000); /* the next millisecond */
	record(other, 2, 1, 0);
	CHECK_EQUAL(poll(&wait, 1, 0), 1);
	REQUIRE(recordings_next(fixture.all, &file));
	CHECK_STRING(file.domain, "one");
	CHECK(file.until >= file.from && !access(file.path, R_OK));
	REQUIRE(recordings_next(fixture.all, &again)); /* until it is marked as done */
	CHECK_STRING(again.path, file.path);
	recordings_done(fixture.all, &file);
	CHECK_EQUAL(count_files(recording_directory(one), ".perf.data"), 1);
	CHECK_EQUAL(count_files(recording_directory(one), ".new"), 0);
	REQUIRE(recordings_next(fixture.all, &file));
	CHECK_STRING(file.domain, "o/ther");

	recordings_remove(fixture.all, one);
	recordings_remove(fixture.all, other);
	recordings_close(fixture.all);
	open_all(&fixture);
	wait.fd = recordings_new_fd(fixture.all);
	CHECK_EQUAL(poll(&wait, 1, 0), 1);
	REQUIRE(recordings_next(fixture.all, &again));
	CHECK_STRING(again.path, file.path);
	CHECK_EQUAL(again.from, file.from);
	CHECK_EQUAL(again.until, file.until);
	recordings_done(fixture.all, &again);
	CHECK(!recordings_next(fixture.all, &file));
	CHECK_EQUAL(poll(&wait, 1, 0), 0);
	tear_down(&fixture);
}

/* Runs BODY in a child with its directory on a tmpfs of 4 MiB. */
static void on_small_disk(void (*body)(struct fixture *fixture))
{
	struct fixture fixture;
	int status = -1;
	pid_t child;

	set_up(&fixture);
	fflush(NULL);
	child = fork();
	if (!child) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", fixture.directory, "tmpfs", 0, "size=4m"))
			_exit(77);
		body(&fixture);
		_exit(0);
	}
	waitpid(child, &status, 0);
	tear_down(&fixture);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("a file system may not be mounted here");
	CHECK_EQUAL(status, 0);
}

/* Checks in the child are not counted: a failure ends it. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%d: not true: %s\n", __LINE__, #condition);               \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Writes a recording of about SIZE bytes; returns the error. */
static int write_recording(struct recording *recording, size_t size)
{
	const struct collector_files *files = recording_files(recording);
	char path[PATH_MAX];
	struct perf_data_options options = {
		.path = path, .frequency = 99, .callchains = true, .vcpus = 1, .room = files->room
	};
	struct sample sample = { .period = 1, .rip = 0xffffffff81000000 };
	struct perf_data_writer *writer;
	uint64_t count = 0;
	int error = files->begin(files->context, path, sizeof(path));

	if (error)
		return error;
	error = perf_data_writer_open(&writer, &options);
	for (; !error && perf_data_writer_bytes(writer) < size; count++) {
		sample.time = 1000 + count;
		error = perf_data_writer_sample(writer, &sample);
	}
	if (!error)
		error = perf_data_writer_close(writer);
	else
		perf_data_writer_close(writer);
	files->end(files->context, &(struct collector_file){ path, count, error });
	return error;
}

static void fill_disk(struct fixture *fixture)
{
	struct recording *one, *other;

	open_all(fixture);
	one = add(fixture, "one");
	other = add(fixture, "other");
	for (unsigned int i = 0; i < 20; i++)
		MUST(!write_recording(i % 2 ? other : one, MIB * 3 / 4));
	MUST(statistics(fixture).sacrificed >= 14);
	MUST(statistics(fixture).dropped == 0);
	MUST(count_files(recording_directory(one), ".perf.data") > 0);
	MUST(count_files(recording_directory(other), ".perf.data") > 0);
	MUST(count_files(recording_directory(one), ".partial") == 0);

	/* One that is larger than the disk: all others of its domain go, then it itself, and the
	 * next one is whole again. */
	MUST(write_recording(one, 8 * MIB) == -ENOSPC);
	MUST(statistics(fixture).dropped == 1);
	MUST(count_files(recording_directory(one), ".perf.data") == 0);
	MUST(count_files(recording_directory(other), ".perf.data") > 0);
	MUST(count_files(recording_directory(one), ".partial") == 0);
	MUST(!write_recording(one, MIB));
}

TEST(recordings, the_oldest_are_removed_when_the_disk_is_full)
{
	on_small_disk(fill_disk);
}

static void grow(struct fixture *fixture)
{
	struct recording *small, *hog, *newcomer;

	open_all(fixture);
	small = add(fixture, "small");
	for (unsigned int i = 0; i < 4; i++)
		MUST(!write_recording(small, MIB / 8)); /* the oldest of all */
	hog = add(fixture, "hog");
	for (unsigned int i = 0; i < 20; i++)
		MUST(!write_recording(hog, MIB / 2));
	MUST(statistics(fixture).sacrificed >= 13);
	MUST(count_files(recording_directory(small), ".perf.data") == 4);
	MUST(write_recording(hog, 8 * MIB) == -ENOSPC);
	MUST(count_files(recording_directory(small), ".perf.data") == 4);

	/* The domain that uses the most space makes room for one that uses little. */
	for (unsigned int i = 0; i < 20; i++)
		MUST(!write_recording(hog, MIB / 2));
	newcomer = add(fixture, "newcomer");
	for (unsigned int i = 0; i < 3; i++)
		MUST(!write_recording(newcomer, MIB / 4));
	MUST(count_files(recording_directory(newcomer), ".perf.data") == 3);
	MUST(count_files(recording_directory(small), ".perf.data") == 4);
}

TEST(recordings, of_a_domain_that_grows_do_not_replace_those_of_others)
{
	on_small_disk(grow);
}

/* The domain that grows makes room itself, even if another one is larger. */
static void grow_beside_larger(struct fixture *fixture)
{
	static const char *const small[] = { "small", "smaller", "smallest" };
	struct recording *large, *growing, *others[3];

	open_all(fixture);
	large = add(fixture, "large");
	for (unsigned int i = 0; i < 4; i++)
		MUST(!write_recording(large, MIB / 2));
	for (unsigned int i = 0; i < 3; i++) {
		others[i] = add(fixture, small[i]);
		MUST(!write_recording(others[i], MIB / 16));
	}
	growing = add(fixture, "growing");
	for (unsigned int i = 0; i < 20; i++)
		MUST(!write_recording(growing, MIB / 4));
	MUST(statistics(fixture).sacrificed >= 10);
	MUST(count_files(recording_directory(large), ".perf.data") == 4);
	for (unsigned int i = 0; i < 3; i++)
		MUST(count_files(recording_directory(others[i]), ".perf.data") == 1);
}

TEST(recordings, of_a_domain_that_grows_do_not_replace_those_of_a_larger_one)
{
	on_small_disk(grow_beside_larger);
}

static void keep_reserve(struct fixture *fixture)
{
	struct recording *recording;
	char hog[96];
	int fd;

	fixture->options.reserve = 2 * MIB;
	open_all(fixture);
	recording = add(fixture, "one");
	for (unsigned int i = 0; i < 10; i++)
		MUST(!write_recording(recording, MIB / 4));
	MUST(statistics(fixture).bytes <= 2 * MIB);
	MUST(statistics(fixture).sacrificed > 0);
	MUST(statistics(fixture).reserve == 2 * MIB);
	MUST(statistics(fixture).free >= 2 * MIB && statistics(fixture).free < 3 * MIB);

	/* Somebody else needs the disk: nothing of ours is left that could go, and nothing is
	 * written. */
	snprintf(hog, sizeof(hog), "%s/hog", fixture->directory);
	fd = open(hog, O_WRONLY | O_CREAT, 0600);
	MUST(!posix_fallocate(fd, 0, 2 * MIB));
	MUST(write_recording(recording, MIB / 4) == -ENOSPC);
	MUST(statistics(fixture).files == 0);
	MUST(statistics(fixture).free < 2 * MIB);
	MUST(strstr(error_message(), "has no space"));
	MUST(!unlink(hog) && !close(fd));
	MUST(!write_recording(recording, MIB / 4));
}

TEST(recordings, leave_the_reserve_free)
{
	on_small_disk(keep_reserve);
}
