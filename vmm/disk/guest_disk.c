/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/guest_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/bytes.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/disk/sandbox.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/symbols/elf_file.h"

/* The names that distributions use. */
static const char *const readers[] = { "/usr/bin/grub-fstest", "/usr/bin/grub2-fstest" };

#define SECONDS     20 /* limit of one read, */
#define SECONDS_ALL 60 /* and of all reads without a file */
#define LISTING_MAX (1u << 20)

/* A file system and its position in the guest's tree. */
struct location {
	unsigned int volume;
	unsigned int root; /* of roots[] */
};

struct guest_disk {
	char path[PATH_MAX];
	struct sandbox sandbox;
	struct sandbox_broker *broker; /* the caller's; NULL: none */
	struct guest_disk_volumes volumes;
	const char *reader;
	size_t file_max;
	bool given_up;          /* reading took too long */
	uint64_t wasted;        /* ms of reads without a file */
	struct location latest; /* where a file was found last */
	unsigned int misses;
	uint64_t taken; /* bytes */
};

/* Prefixes of paths in their file system: Debian, Ubuntu and Fedora have the root in such
 * subvolumes. A file system that is mounted elsewhere lacks the first parts of the path. */
static const struct {
	const char *before;
	unsigned int mounted; /* leading parts to drop */
} roots[] = { { "", 0 }, { "/@rootfs", 0 }, { "/@", 0 }, { "/root", 0 }, { "", 1 }, { "", 2 } };

#define ROOTS (sizeof(roots) / sizeof(roots[0]))

#define TYPE "Filesystem type "

struct line {
	const char *text;
	size_t size;
};

static bool skip_text(struct line *line, const char *start)
{
	size_t size = strlen(start);

	if (line->size < size || memcmp(line->text, start, size) != 0)
		return false;
	line->text += size;
	line->size -= size;
	return true;
}

/* Length of a name of letters, digits and characters that are not special to GRUB. */
static size_t name_size(const struct line *line)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,/_.+-";
	size_t size = 0;

	while (size < line->size && line->text[size] && strchr(plain, line->text[size]))
		size++;
	return size;
}

/* "Device loop0: Filesystem type ext* - ...", "\tPartition loop0,gpt2: Filesystem type xfs - ...".
 */
static bool read_volume(struct line line, char *name)
{
	const char *start;
	size_t size;

	if (!skip_text(&line, "Device ") && !skip_text(&line, "\tPartition "))
		return false;
	start = line.text;
	size = name_size(&line);
	if (!size || size >= GUEST_DISK_VOLUME_SIZE)
		return false;
	line.text += size;
	line.size -= size;
	if (!skip_text(&line, ": " TYPE) ||
	    (!skip_text(&line, "ext") && !skip_text(&line, "xfs") && !skip_text(&line, "btrfs")))
		return false;
	memcpy(name, start, size);
	name[size] = '\0';
	return true;
}

void guest_disk_volumes_read(struct guest_disk_volumes *volumes, const char *listing, size_t size)
{
	const char *end = listing + size;

	volumes->count = 0;
	while (listing < end && volumes->count < GUEST_DISK_VOLUMES_MAX) {
		const char *newline = memchr(listing, '\n', (size_t)(end - listing));
		struct line line = { listing, (size_t)((newline ? newline : end) - listing) };

		if (read_volume(line, volumes->names[volumes->count]))
			volumes->count++;
		listing = newline ? newline + 1 : end;
	}
}

/* ARGUMENTS start with the reader and the disk. */
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
		       ? error_set(error, "cannot find file systems on %s: %s", disk->path,
				   error_message())
		       : error_set(-ENODEV, "no ext4, XFS or btrfs file system was found on %s",
				   disk->path);
}

/* QEMU's image formats by their first bytes. */
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

static int check_image(struct guest_disk *disk, const struct disk_probe *probe)
{
	const char *format = format_of(probe->start, probe->size);

	disk->sandbox.uid = probe->uid;
	disk->sandbox.gid = probe->gid;
	if (!format)
		return 0;
	return error_set(
		-ENOTSUP,
		"%s is a %s image, and only raw images can be read: convert it (qemu-img convert -O raw), or "
		"mount it and use --symfs",
		disk->path, format);
}

const char *guest_disk_reader(void)
{
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
		if (!access(readers[i], X_OK))
			return readers[i];
	return NULL;
}

static int probe_disk(struct guest_disk *disk, const char *path, struct disk_probe *probe)
{
	if (!disk->broker)
		return realpath(path, disk->path)
			       ? disk_probe(&(struct disk_file){ .path = disk->path }, probe)
			       : -errno;
	snprintf(disk->path, sizeof(disk->path), "%s", path);
	return sandbox_broker_probe(disk->broker, path, probe);
}

static int open_image(struct guest_disk *disk, const char *path)
{
	struct disk_probe probe = { 0 };
	int error = probe_disk(disk, path, &probe);

	if (error == -ENOTBLK)
		return error_set(-EINVAL, "%s is neither a file nor a block device", path);
	if (error)
		return error_set(error, "cannot read the guest's disk %s: %s", path,
				 strerror(-error));
	error = check_image(disk, &probe);
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
			"all files of the disk's owner");
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

/* True for a complete ELF file of that build; the guest may be writing it just now. */
static bool is_build(const struct bytes *file, struct span build_id)
{
	char path[BYTES_PATH_SIZE];
	int fd = bytes_open_file(file, path);
	bool same = false;
	struct elf_file elf;

	if (fd < 0)
		return false;
	if (!elf_file_open(&elf, path)) {
		same = !elf_file_check(&elf, build_id) && elf_file_is_whole(&elf, file->size);
		elf_file_close(&elf);
	}
	close(fd);
	return same;
}

static void count_wasted(struct guest_disk *disk, uint64_t ms, int error)
{
	disk->wasted += ms;
	if (disk->given_up ||
	    (error != -ETIMEDOUT && error != -ECANCELED && disk->wasted < SECONDS_ALL * 1000ull))
		return;
	disk->given_up = true;
	if (error == -ECANCELED)
		return;
	log_warning("the guest's disk %s is no longer read: it is too slow (%" PRIu64
		    " s without a file)",
		    disk->path, disk->wasted / 1000);
}

/* NAME without its first MOUNTED parts; NULL: it has no more. */
static const char *skip_mount_point(const char *name, unsigned int mounted)
{
	for (; name && mounted; mounted--)
		name = strchr(name + 1, '/');
	return name;
}

static bool read_at(struct guest_disk *disk, struct location location, const char *path,
		    struct span build_id, struct bytes *file)
{
	const char *rest = skip_mount_point(path, roots[location.root].mounted);
	char name[2 * PATH_MAX];
	const char *const arguments[] = { disk->reader, disk->path, "cat", name, NULL };
	uint64_t begun = clock_ms(CLOCK_MONOTONIC);
	int error;

	*file = (struct bytes){ 0 };
	if (!rest || snprintf(name, sizeof(name), "(%s)%s%s", disk->volumes.names[location.volume],
			      roots[location.root].before, rest) >= (int)sizeof(name))
		return false;
	disk->sandbox.output_max = disk->file_max;
	error = run_reader(disk, arguments, file);
	if (!error && is_build(file, build_id))
		return true;
	count_wasted(disk, clock_ms(CLOCK_MONOTONIC) - begun, error);
	free(file->data);
	*file = (struct bytes){ 0 };
	return false;
}

static bool is_latest(const struct guest_disk *disk, struct location location)
{
	return location.volume == disk->latest.volume && location.root == disk->latest.root;
}

static bool read_somewhere(struct guest_disk *disk, const char *path, struct span build_id,
			   struct bytes *file)
{
	if (read_at(disk, disk->latest, path, build_id, file))
		return true;
	if (disk->misses == GUEST_DISK_MISSES_MAX)
		return false;
	for (unsigned int i = 0; i < disk->volumes.count * ROOTS && !disk->given_up; i++) {
		struct location location = { .volume = i % disk->volumes.count,
					     .root = i / disk->volumes.count };

		if (is_latest(disk, location) || !read_at(disk, location, path, build_id, file))
			continue;
		disk->latest = location;
		return true;
	}
	disk->misses++;
	return false;
}

/* True for paths as kernels report them. */
static bool is_plain(const char *path)
{
	return *path == '/' && path[1] && path[1] != '/' && strlen(path) < PATH_MAX &&
	       !strstr(path, "/../");
}

int guest_disk_read(struct guest_disk *disk, const char *path, struct span build_id,
		    struct bytes *file)
{
	*file = (struct bytes){ 0 };
	if (!is_plain(path) || !build_id.size)
		return -EINVAL;
	if (disk->given_up || disk->taken >= GUEST_DISK_TOTAL_MAX ||
	    !read_somewhere(disk, path, build_id, file))
		return -ENOENT;
	disk->taken += file->size;
	return 0;
}
