// SPDX-License-Identifier: Apache-2.0
#include "vmm/disk/guest_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/disk/disk_probe.h"
#include "vmm/disk/guest_disk_volumes.h"
#include "vmm/disk/sandbox.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/symbols/bytes_file.h"
#include "vmm/symbols/elf_file.h"

/* As distributions call it. */
static const char *const readers[] = { "/usr/bin/grub-fstest", "/usr/bin/grub2-fstest" };

#define SECONDS     20 /* that one read may take, */
#define SECONDS_ALL 60 /* and all that give no file */
#define LISTING_MAX (1u << 20)

/* Where a file system begins in the guest's tree of names. */
struct place {
	unsigned int volume;
	unsigned int root; /* of roots[] */
};

struct guest_disk {
	char path[PATH_MAX];
	struct sandbox sandbox;
	struct sandbox_broker *broker; /* the caller's; NULL: none is needed */
	struct guest_disk_volumes volumes;
	const char *reader;
	size_t file_max;
	bool given_up;       /* reading it took too long */
	uint64_t wasted;     /* ms, by reads that gave no file */
	struct place latest; /* where a file was found */
	unsigned int misses;
	uint64_t taken; /* bytes */
};

/*
 * What stands before a file's name in its file system: subvolumes that Debian, Ubuntu and Fedora
 * call so have the root; and what of the name does not, as it is the mount point's.
 */
static const struct {
	const char *before;
	unsigned int mounted; /* parts of the name */
} roots[] = { { "", 0 }, { "/@rootfs", 0 }, { "/@", 0 }, { "/root", 0 }, { "", 1 }, { "", 2 } };

#define ROOTS (sizeof(roots) / sizeof(roots[0]))

/* ARGUMENTS begin with the reader and the disk. */
static int run_reader(const struct guest_disk *disk, const char *const *arguments,
		      struct bytes *output)
{
	return disk->broker ? sandbox_broker_run(disk->broker, &disk->sandbox, disk->path,
						 arguments + 2, output)
			    : sandbox_run(&disk->sandbox, arguments, output);
}

static int find_volumes(struct guest_disk *disk)
{
	const char *const arguments[] = { disk->reader, disk->path, "ls", "--", "-l", NULL };
	struct bytes output;
	int error;

	disk->sandbox.output_max = LISTING_MAX;
	error = run_reader(disk, arguments, &output);
	if (output.size)
		guest_disk_volumes_read(&disk->volumes, (const char *)output.data, output.size);
	free(output.data);
	if (disk->volumes.count)
		return 0;
	return error && error != -EIO
		       ? error_set(error, "cannot look for file systems on %s: %s", disk->path,
				   error_message())
		       : error_set(-ENODEV, "no ext4, XFS or btrfs file system was found on %s",
				   disk->path);
}

/* Formats that QEMU knows, by how they begin. */
static const char *format_of(const char *start, size_t size)
{
	static const struct {
		const char *bytes, *name;
	} formats[] = { { "QFI\xfb", "qcow2" }, { "KDMV", "VMDK" },    { "QED", "QED" },
			{ "vhdxfile", "VHDX" }, { "conectix", "VHD" }, { "<<< ", "VDI" } };

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (size >= strlen(formats[i].bytes) &&
		    !memcmp(start, formats[i].bytes, strlen(formats[i].bytes)))
			return formats[i].name;
	return NULL;
}

static int check_image(struct guest_disk *disk, const struct disk_probe *look)
{
	const char *format = format_of(look->start, look->size);

	disk->sandbox.uid = look->uid;
	disk->sandbox.gid = look->gid;
	if (!format)
		return 0;
	return error_set(
		-ENOTSUP,
		"%s is a %s image, and only raw ones can be read: make one of it (qemu-img convert -O raw), or "
		"mount it and give --symfs",
		disk->path, format);
}

const char *guest_disk_reader(void)
{
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
		if (!access(readers[i], X_OK))
			return readers[i];
	return NULL;
}

static int look_at(struct guest_disk *disk, const char *path, struct disk_probe *look)
{
	if (!disk->broker)
		return realpath(path, disk->path)
			       ? disk_probe(&(struct disk_file){ .path = disk->path }, look)
			       : -errno;
	snprintf(disk->path, sizeof(disk->path), "%s", path);
	return sandbox_broker_probe(disk->broker, path, look);
}

static int open_image(struct guest_disk *disk, const char *path)
{
	struct disk_probe look = { 0 };
	int error = look_at(disk, path, &look);

	if (error == -ENOTBLK)
		return error_set(-EINVAL, "%s is neither a file nor a block device", path);
	if (error)
		return error_set(error, "cannot read the guest's disk %s: %s", path,
				 strerror(-error));
	error = check_image(disk, &look);
	disk->reader = guest_disk_reader();
	if (!error && !disk->reader)
		error = error_set(
			-ENOENT,
			"cannot read the guest's disk %s: %s is missing (Debian package grub-common)",
			path, readers[0]);
	return error;
}

static void warn_without_landlock(void)
{
	static bool warned;

	if (!warned && !sandbox_has_landlock())
		log_warning(
			"this kernel has no Landlock: the process that reads a guest's disk could read "
			"what else the disk's owner may");
	warned = true;
}

int guest_disk_open(struct guest_disk **opened, const char *path,
		    const struct guest_disk_limits *limits)
{
	struct guest_disk *disk = calloc(1, sizeof(*disk));
	int error;

	if (!disk)
		return error_set(-ENOMEM, "no memory for the guest's disk %s", path);
	disk->sandbox = (struct sandbox){ .readable = disk->path, .seconds = SECONDS };
	disk->file_max = GUEST_DISK_FILE_MAX;
	if (limits) {
		disk->sandbox.is_over = limits->is_over;
		disk->sandbox.context = limits->context;
		disk->broker = limits->broker;
		disk->file_max = limits->file_max;
	}
	error = open_image(disk, path);
	if (!error) {
		warn_without_landlock();
		error = find_volumes(disk);
	}
	if (error)
		free(disk);
	else
		*opened = disk;
	return error;
}

void guest_disk_close(struct guest_disk *disk)
{
	free(disk);
}

/* Is it an ELF file of that build, all of it? One that the guest is writing may not be. */
static bool is_build(const struct bytes *file, const uint8_t *build_id, size_t build_id_size)
{
	char path[BYTES_FILE_PATH];
	int fd = bytes_file_open(file, path);
	bool same = false;
	struct elf_file elf;

	if (fd < 0)
		return false;
	if (!elf_file_open(&elf, path)) {
		same = !elf_file_check(&elf, build_id, build_id_size) &&
		       elf_file_is_whole(&elf, file->size);
		elf_file_close(&elf);
	}
	close(fd);
	return same;
}

static void waste(struct guest_disk *disk, uint64_t ms, int error)
{
	disk->wasted += ms;
	if (disk->given_up ||
	    (error != -ETIMEDOUT && error != -ECANCELED && disk->wasted < SECONDS_ALL * 1000ull))
		return;
	disk->given_up = true;
	if (error == -ECANCELED)
		return;
	log_warning("no more files are read of the guest's disk %s: it took too long (%" PRIu64
		    " s without a file)",
		    disk->path, disk->wasted / 1000);
}

/* NAME without the parts of a mount point; NULL: it has no more. */
static const char *below(const char *name, unsigned int mounted)
{
	for (; name && mounted; mounted--)
		name = strchr(name + 1, '/');
	return name;
}

static bool read_at(struct guest_disk *disk, struct place place, const char *path,
		    const uint8_t *build_id, size_t build_id_size, struct bytes *file)
{
	const char *rest = below(path, roots[place.root].mounted);
	char name[2 * PATH_MAX];
	const char *const arguments[] = { disk->reader, disk->path, "cat", name, NULL };
	uint64_t begun = clock_ms(CLOCK_MONOTONIC);
	int error;

	*file = (struct bytes){ 0 };
	if (!rest || snprintf(name, sizeof(name), "(%s)%s%s", disk->volumes.names[place.volume],
			      roots[place.root].before, rest) >= (int)sizeof(name))
		return false;
	disk->sandbox.output_max = disk->file_max;
	error = run_reader(disk, arguments, file);
	if (!error && is_build(file, build_id, build_id_size))
		return true;
	waste(disk, clock_ms(CLOCK_MONOTONIC) - begun, error);
	free(file->data);
	*file = (struct bytes){ 0 };
	return false;
}

static bool is_latest(const struct guest_disk *disk, struct place place)
{
	return place.volume == disk->latest.volume && place.root == disk->latest.root;
}

static bool read_somewhere(struct guest_disk *disk, const char *path, const uint8_t *build_id,
			   size_t build_id_size, struct bytes *file)
{
	if (read_at(disk, disk->latest, path, build_id, build_id_size, file))
		return true;
	if (disk->misses == GUEST_DISK_MISSES_MAX)
		return false;
	for (unsigned int i = 0; i < disk->volumes.count * ROOTS && !disk->given_up; i++) {
		struct place place = { .volume = i % disk->volumes.count,
				       .root = i / disk->volumes.count };

		if (is_latest(disk, place) ||
		    !read_at(disk, place, path, build_id, build_id_size, file))
			continue;
		disk->latest = place;
		return true;
	}
	disk->misses++;
	return false;
}

/* As kernels give them. */
static bool is_plain(const char *path)
{
	return *path == '/' && path[1] && path[1] != '/' && strlen(path) < PATH_MAX &&
	       !strstr(path, "/../");
}

int guest_disk_read(struct guest_disk *disk, const char *path, const uint8_t *build_id,
		    size_t build_id_size, struct bytes *file)
{
	*file = (struct bytes){ 0 };
	if (!is_plain(path) || !build_id_size)
		return -EINVAL;
	if (disk->given_up || disk->taken >= GUEST_DISK_TOTAL_MAX ||
	    !read_somewhere(disk, path, build_id, build_id_size, file))
		return -ENOENT;
	disk->taken += file->size;
	return 0;
}
