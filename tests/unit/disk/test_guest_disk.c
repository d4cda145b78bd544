/* SPDX-License-Identifier: Apache-2.0 */
/* Reading programs from disks that the usual tools created, intact and broken. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/rights.h"
#include "vmm/disk/disk_symbols.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/symbols/elf_symbols.h"

#define PROGRAM "build/inlines/stripped"
#define PLACE   "/usr/bin/program"

/* A directory with tree/, which has the program at PLACE, and a disk. */
struct made {
	char directory[64], disk[80];
	uint8_t build_id[ELF_BUILD_ID_MAX];
	size_t build_id_size;
};

static bool shell(const char *command)
{
	char quiet[8192];

	snprintf(quiet, sizeof(quiet), "{ %s; } > /dev/null 2>&1", command);
	return !system(quiet);
}

/* COMMAND creates $d/disk from $d/tree, with the tools of root's PATH. */
static bool make_disk(struct made *made, const char *command)
{
	char whole[4096];
	int size = elf_build_id(PROGRAM, made->build_id);

	strcpy(made->directory, "/tmp/kvmscope-disk-XXXXXX");
	if (!mkdtemp(made->directory) || size <= 0)
		return false;
	made->build_id_size = (size_t)size;
	snprintf(made->disk, sizeof(made->disk), "%s/disk", made->directory);
	snprintf(whole, sizeof(whole),
		 "d=%s; p=$PWD/" PROGRAM
		 "; PATH=$PATH:/usr/sbin:/sbin; mkdir -p $d/tree/usr/bin && cp $p $d/tree" PLACE
		 " && ln -s usr/bin $d/tree/bin && %s",
		 made->directory, command);
	if (shell(whole))
		return true;
	FAIL_TEST("cannot make a disk by: %s", command);
	return false;
}

static void drop_disk(const struct made *made)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", made->directory);
	CHECK(shell(command));
}

static bool is_program(const struct bytes *file)
{
	struct bytes whole = { 0 };
	char part[4096];
	size_t size;
	FILE *from = fopen(PROGRAM, "re");
	bool same;

	while (from && (size = fread(part, 1, sizeof(part), from)))
		bytes_add(&whole, part, size);
	if (from)
		fclose(from);
	same = whole.size && whole.size == file->size &&
	       !memcmp(whole.data, file->data, whole.size);
	free(whole.data);
	return same;
}

#define NEED_READER                                                                                \
	do {                                                                                       \
		if (access("/usr/bin/grub-fstest", X_OK))                                          \
			SKIP("grub-fstest (package grub-common) is not here");                     \
	} while (0)

/* The program is found by each of its names if the build matches. */
static void check_disk(const char *command, const char *place)
{
	struct guest_disk *disk;
	struct bytes file;
	struct made made;

	REQUIRE(make_disk(&made, command));
	if (guest_disk_open(&disk, made.disk, NULL)) {
		FAIL_TEST("%s", error_message());
		drop_disk(&made);
		return;
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQUAL(guest_disk_read(disk, place, span_of(made.build_id, made.build_id_size),
					    &file),
			    0);
		CHECK(is_program(&file));
		free(file.data);
	}
	CHECK_EQUAL(guest_disk_read(disk, "/usr/bin/other",
				    span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	made.build_id[3] ^= 1;
	CHECK_EQUAL(guest_disk_read(disk, place, span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	CHECK(!file.data);
	guest_disk_close(disk);
	drop_disk(&made);
}

#define EXT4(path, mib) "truncate -s " #mib "M " path " && mkfs.ext4 -q -d $d/tree " path

TEST(guest_disk, of_ext4_is_read)
{
	NEED_READER;
	check_disk(EXT4("$d/disk", 64), PLACE);
}

TEST(guest_disk, follows_links)
{
	NEED_READER;
	check_disk(EXT4("$d/disk", 64), "/bin/program");
}

TEST(guest_disk, of_xfs_is_read)
{
	NEED_READER;
	check_disk(
		"printf 'x\\n0 0\\nd--755 0 0\\nusr d--755 0 0\\nbin d--755 0 0\\nprogram ---755 0 0 %s\\n$\\n$\\n$\\n' "
		"$p > $d/proto && truncate -s 320M $d/disk && mkfs.xfs -q -p $d/proto $d/disk",
		PLACE);
}

TEST(guest_disk, of_btrfs_is_read_where_debian_has_the_root)
{
	NEED_READER;
	check_disk("mkdir $d/top && mv $d/tree $d/top/@rootfs && truncate -s 128M $d/disk && "
		   "mkfs.btrfs -q --rootdir $d/top $d/disk",
		   PLACE);
}

/* The second of two partitions, in either kind of table, assembled without a device. */
#define PARTITIONS(label)                                                                          \
	"truncate -s 160M $d/disk && printf 'label: " label                                        \
	"\\nstart=2048,size=65536\\nstart=67584\\n' | sfdisk -q $d/disk && " EXT4(                 \
		"$d/part", 120) " && "                                                             \
				"dd if=$d/part of=$d/disk bs=1M seek=33 conv=notrunc"

TEST(guest_disk, in_a_gpt_partition_is_read)
{
	NEED_READER;
	check_disk(PARTITIONS("gpt"), PLACE);
}

TEST(guest_disk, in_an_mbr_partition_is_read)
{
	NEED_READER;
	check_disk(PARTITIONS("dos"), PLACE);
}

/* /usr is a file system of its own: its paths lack /usr. */
TEST(guest_disk, of_a_mount_point_is_read)
{
	NEED_READER;
	check_disk("mv $d/tree/usr $d/usr && rm -r $d/tree && mv $d/usr $d/tree && " EXT4("$d/disk",
											  64),
		   PLACE);
}

/* Its build id is at its start: the symbols are missing. */
TEST(guest_disk, refuses_a_truncated_file)
{
	struct guest_disk *disk;
	struct bytes file;
	struct made made;

	NEED_READER;
	REQUIRE(make_disk(&made, "truncate -s -64 $d/tree" PLACE " && " EXT4("$d/disk", 64)));
	REQUIRE_EQUAL(guest_disk_open(&disk, made.disk, NULL), 0);
	CHECK_EQUAL(guest_disk_read(disk, PLACE, span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	free(file.data);
	guest_disk_close(disk);
	drop_disk(&made);
}

static bool is_true(void *context)
{
	return *(const bool *)context;
}

TEST(guest_disk, stops_at_a_limit)
{
	bool over = true;
	struct guest_disk_limits limits = { .file_max = 64, .is_over = is_true, .context = &over };
	struct guest_disk *disk;
	struct bytes file;
	struct made made;

	NEED_READER;
	REQUIRE(make_disk(&made, EXT4("$d/disk", 64)));
	CHECK_EQUAL(guest_disk_open(&disk, made.disk, &limits), -ECANCELED);
	over = false;
	/* Too large, */
	REQUIRE_EQUAL(guest_disk_open(&disk, made.disk, &limits), 0);
	CHECK_EQUAL(guest_disk_read(disk, PLACE, span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	guest_disk_close(disk);
	/* or too late, from then on. */
	limits.file_max = GUEST_DISK_FILE_MAX;
	REQUIRE_EQUAL(guest_disk_open(&disk, made.disk, &limits), 0);
	over = true;
	CHECK_EQUAL(guest_disk_read(disk, PLACE, span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	over = false;
	CHECK_EQUAL(guest_disk_read(disk, PLACE, span_of(made.build_id, made.build_id_size), &file),
		    -ENOENT);
	guest_disk_close(disk);
	drop_disk(&made);
}

/* A guest must not fill the host's disk. */
TEST(guest_disk, is_not_copied_without_disk_space)
{
	const uint64_t mib = 1 << 20, gib = 1 << 30;

	CHECK(disk_symbols_has_room(100 * gib, gib + 128 * mib));
	CHECK(!disk_symbols_has_room(100 * gib, gib + 128 * mib - 1));
	CHECK(disk_symbols_has_room(1000 * mib, 228 * mib));
	CHECK(!disk_symbols_has_room(1000 * mib, 228 * mib - 1));
	CHECK(!disk_symbols_has_room(64 * mib, 64 * mib));
}

static void check_refused(const char *command, int error, const char *why)
{
	struct guest_disk *disk;
	struct made made;

	REQUIRE(make_disk(&made, command));
	CHECK_EQUAL(guest_disk_open(&disk, made.disk, NULL), error);
	if (!strstr(error_message(), why))
		FAIL_TEST("it says \"%s\"", error_message());
	drop_disk(&made);
}

TEST(guest_disk, reports_what_it_cannot_read)
{
	NEED_READER;
	check_refused("printf 'QFI\\373' > $d/disk", -ENOTSUP, "is a qcow2 image");
	check_refused("truncate -s 16M $d/disk", -ENODEV, "no ext4, XFS or btrfs");
	check_refused("true", -ENOENT, "cannot read the guest's disk");
	check_refused("mkdir $d/disk", -EINVAL, "neither a file");
	check_refused("truncate -s 16M $d/disk && mkfs.ext4 -q $d/disk && chmod 0 $d/disk && "
		      "truncate -s 0 $d/disk",
		      -ENODEV, "no ext4");
}

/* Output of GRUB 2.06, with misleading names from a disk. */
TEST(guest_disk, has_the_volumes_that_are_listed)
{
	static const char listing[] =
		"Device proc: Filesystem type procfs - Sector size 512B - Total size 0KiB\n"
		"Device loop0: No known filesystem detected - Sector size 512B - Total size 614400KiB\n"
		"\tPartition loop0,gpt2: Filesystem type ext* - Label `x', UUID 8aac3d5a - Partition start at 1KiB\n"
		"\tPartition loop0,gpt1: Filesystem type fat, UUID 1234 - Partition start at 1024KiB\n"
		"Device lvm/vg-root: Filesystem type btrfs - Label `Device a: Filesystem type xfs' - Sector\n"
		"Device a)(host: Filesystem type xfs - \n"
		"\tPartition : Filesystem type xfs\n"
		"Device loop0: Filesystem type xfs";
	struct guest_disk_volumes volumes;

	guest_disk_volumes_read(&volumes, listing, sizeof(listing) - 1);
	REQUIRE_EQUAL(volumes.count, 3);
	CHECK_STRING(volumes.names[0], "loop0,gpt2");
	CHECK_STRING(volumes.names[1], "lvm/vg-root");
	CHECK_STRING(volumes.names[2], "loop0");
}

static uint64_t state = 7;

static uint32_t next_random(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* The result is the requested build or nothing, whatever is on the disk. */
TEST(guest_disk, that_is_broken_returns_the_build_or_nothing)
{
	struct guest_disk *disk;
	unsigned int found = 0, opened = 0;
	struct bytes file;
	struct made made;
	int fd;

	NEED_READER;
	REQUIRE(make_disk(&made, EXT4("$d/disk", 8)));
	fd = open(made.disk, O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 12 && fd >= 0; i++) {
		/* Breaks more and more of the file system's own data. */
		for (int j = 0; j < 64 << i; j++) {
			uint8_t byte = (uint8_t)next_random(256);

			CHECK_EQUAL(pwrite(fd, &byte, 1, next_random(i % 2 ? 1 << 20 : 8 << 20)),
				    1);
		}
		if (guest_disk_open(&disk, made.disk, NULL))
			continue;
		opened++;
		if (!guest_disk_read(disk, PLACE, span_of(made.build_id, made.build_id_size),
				     &file)) {
			found++;
			CHECK(file.size > 0);
		}
		free(file.data);
		guest_disk_close(disk);
	}
	close(fd);
	printf("%u could be opened, %u files found\n", opened, found);
	drop_disk(&made);
}

/* Rights belong to threads: this one drops all of them, so that root cannot read another user's
 * file. */
static void *read_without_rights(void *context)
{
	const struct made *made = context;
	const struct disk_file places[] = { { .path = made->disk }, { .path = "/nowhere/disk" } };
	struct guest_disk_limits limits = { .file_max = GUEST_DISK_FILE_MAX };
	struct guest_disk *disk;
	struct bytes file;

	CHECK_EQUAL(sandbox_broker_start(&limits.broker, guest_disk_reader(), places, 2), 0);
	CHECK_EQUAL(rights_keep_only(NULL, 0), 0);
	CHECK_EQUAL(guest_disk_open(&disk, made->disk, NULL), -EACCES);
	CHECK_EQUAL(guest_disk_open(&disk, "/nowhere/disk", &limits), -ENOENT);
	CHECK_EQUAL(guest_disk_open(&disk, "/etc/passwd", &limits), -EINVAL);
	if (guest_disk_open(&disk, made->disk, &limits)) {
		FAIL_TEST("%s", error_message());
	} else {
		CHECK_EQUAL(guest_disk_read(disk, PLACE,
					    span_of(made->build_id, made->build_id_size), &file),
			    0);
		CHECK(is_program(&file));
		free(file.data);
		CHECK_EQUAL(guest_disk_read(disk, "/usr/bin/other",
					    span_of(made->build_id, made->build_id_size), &file),
			    -ENOENT);
		guest_disk_close(disk);
	}
	sandbox_broker_end(limits.broker);
	return NULL;
}

TEST(guest_disk, of_another_user_is_read_through_a_broker)
{
	struct made made;
	pthread_t thread;

	NEED_READER;
	if (geteuid())
		SKIP("only root has a right to other users' files that it can give up");
	REQUIRE(make_disk(
		&made,
		EXT4("$d/disk",
		     64) " && chown 12345:12345 $d/disk && chmod 600 $d/disk && chmod 711 $d"));
	REQUIRE_EQUAL(pthread_create(&thread, NULL, read_without_rights, &made), 0);
	pthread_join(thread, NULL);
	drop_disk(&made);
}

static bool at_once(void *context)
{
	(void)context;
	return true;
}

/* The reply has its size, but no data has arrived. */
static bool once_output_begins(void *context)
{
	return ((const struct bytes *)context)->data;
}

TEST(guest_disk, missing_output_is_an_error)
{
	static const char *const end[] = { "--", NULL };
	static const struct disk_file files[] = { { .path = "/etc/passwd" } };
	struct bytes output;
	const struct sandbox sandbox = { .seconds = 20,
					 .output_max = 1 << 20,
					 .is_over = once_output_begins,
					 .context = &output };
	struct sandbox_broker *broker;

	REQUIRE_EQUAL(sandbox_broker_start(&broker, "/bin/cat", files, 1), 0);
	CHECK_EQUAL(sandbox_broker_run(broker, &sandbox, files[0].path, end, &output), -ECANCELED);
	CHECK(output.data);
	CHECK_EQUAL(output.size, 0);
	free(output.data);
	sandbox_broker_end(broker);
}

/* A late reply is not read. */
TEST(guest_disk, a_cancelled_broker_runs_nothing_more)
{
	static const char *const end[] = { "--", NULL };
	static const struct disk_file files[] = { { .path = "/etc/passwd" } };
	const struct sandbox patient = { .seconds = 20, .output_max = 1 << 20 };
	struct sandbox hasty = patient, small = patient;
	struct sandbox_broker *broker;
	struct bytes output;

	hasty.is_over = at_once;
	small.output_max = 1;
	REQUIRE_EQUAL(sandbox_broker_start(&broker, "/bin/cat", files, 1), 0);
	CHECK_EQUAL(sandbox_broker_run(broker, &patient, files[0].path, end, &output), 0);
	CHECK(output.size);
	free(output.data);
	CHECK_EQUAL(sandbox_broker_run(broker, &small, files[0].path, end, &output), -EFBIG);
	free(output.data);
	CHECK_EQUAL(sandbox_broker_run(broker, &patient, "/etc/group", end, &output), -EINVAL);
	CHECK_EQUAL(sandbox_broker_run(broker, &hasty, files[0].path, end, &output), -ECANCELED);
	free(output.data);
	CHECK_EQUAL(sandbox_broker_run(broker, &patient, files[0].path, end, &output), -ECANCELED);
	sandbox_broker_end(broker);
}
