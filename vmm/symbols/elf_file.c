/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"

void elf_file_close(struct elf_file *file)
{
	if (file->elf)
		elf_end(file->elf);
	if (file->fd >= 0)
		close(file->fd);
}

/* Paths come from recordings and guests: anything but a regular file is not opened, because opening
 * a FIFO blocks and opening a device may have effects. */
static int open_regular(const char *path)
{
	int found = open(path, O_PATH | O_CLOEXEC), fd = -1;
	struct stat status;
	char name[32];

	if (found < 0)
		return -errno;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", found);
	if (!fstat(found, &status))
		fd = S_ISREG(status.st_mode) ? open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -2;
	fd = fd == -2 ? -EINVAL : fd < 0 ? -errno : fd;
	close(found);
	return fd;
}

static bool has_many_headers(Elf *elf)
{
	size_t sections = 0, segments = 0;

	elf_getshdrnum(elf, &sections);
	elf_getphdrnum(elf, &segments);
	return sections > ELF_HEADERS_MAX || segments > ELF_HEADERS_MAX;
}

int elf_file_open(struct elf_file *file, const char *path)
{
	int fd = open_regular(path), error;

	if (fd < 0 && fd != -EINVAL)
		return error_set(fd, "cannot open %s: %s", path, strerror(-fd));
	error = elf_file_begin(file, path, fd);
	if (error && fd >= 0)
		close(fd);
	return error;
}

int elf_file_begin(struct elf_file *file, const char *path, int fd)
{
	*file = (struct elf_file){ .path = path, .fd = fd };
	elf_version(EV_CURRENT);
	/* Read, not mapped: a file that shrinks meanwhile must not raise SIGBUS. */
	file->elf = file->fd >= 0 ? elf_begin(file->fd, ELF_C_READ, NULL) : NULL;
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF) {
		elf_end(file->elf);
		return error_set(-EINVAL, "%s is not an ELF file", path);
	}
	if (has_many_headers(file->elf)) {
		elf_end(file->elf);
		return error_set(-EFBIG, "%s has more than %u sections or segments", path,
				 ELF_HEADERS_MAX);
	}
	return 0;
}

Elf_Data *elf_file_data(Elf_Scn *section, uint64_t *left)
{
	GElf_Shdr header;

	if (!gelf_getshdr(section, &header) || header.sh_size > *left)
		return NULL;
	*left -= header.sh_size;
	return elf_getdata(section, NULL);
}

/* elf_strptr() searches a table that does not end with NUL at each call. */
struct elf_strings elf_file_strings(const struct elf_file *file, size_t number)
{
	Elf_Scn *section = elf_getscn(file->elf, number);
	uint64_t left = ELF_STRINGS_MAX;
	Elf_Data *data = section ? elf_file_data(section, &left) : NULL;
	const char *last = data && data->d_buf ? memrchr(data->d_buf, '\0', data->d_size) : NULL;

	if (!last)
		return (struct elf_strings){ 0 };
	return (struct elf_strings){ data->d_buf, (size_t)(last - (const char *)data->d_buf) + 1 };
}

uint64_t elf_file_content_size(const struct elf_file *file)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	uint64_t sum = 0;

	while ((section = elf_nextscn(file->elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type != SHT_NOBITS &&
		    __builtin_add_overflow(sum, header.sh_size, &sum))
			return UINT64_MAX;
	return sum;
}

int elf_file_read_at(void *fd, uint64_t offset, void *to, size_t size)
{
	return offset <= INT64_MAX && pread(*(int *)fd, to, size, (off_t)offset) == (ssize_t)size
		       ? 0
		       : -EFAULT;
}

/* Searches DATA for a note NT_GNU_BUILD_ID; its size or 0. */
static size_t build_id_in(Elf_Data *data, uint8_t *build_id)
{
	size_t offset = 0, name, description;
	GElf_Nhdr header;

	while (data && (offset = gelf_getnote(data, offset, &header, &name, &description)) > 0) {
		if (header.n_type != NT_GNU_BUILD_ID || header.n_namesz != 4 || !header.n_descsz ||
		    header.n_descsz > ELF_BUILD_ID_MAX ||
		    memcmp((char *)data->d_buf + name, "GNU", 4) != 0)
			continue;
		memcpy(build_id, (char *)data->d_buf + description, header.n_descsz);
		return header.n_descsz;
	}
	return 0;
}

static bool lies_in(uint64_t offset, uint64_t size, uint64_t file_size)
{
	return offset <= file_size && size <= file_size - offset;
}

bool elf_file_is_whole(const struct elf_file *file, uint64_t size)
{
	GElf_Ehdr header;
	GElf_Shdr section;
	size_t count;

	/* libelf reports no sections if the headers are outside the file. */
	if (!gelf_getehdr(file->elf, &header) || elf_getshdrnum(file->elf, &count) ||
	    (header.e_shoff && !count) ||
	    !lies_in(header.e_shoff, (uint64_t)count * header.e_shentsize, size))
		return false;
	for (size_t i = 1; i < count; i++)
		if (!gelf_getshdr(elf_getscn(file->elf, i), &section) ||
		    (section.sh_type != SHT_NOBITS &&
		     !lies_in(section.sh_offset, section.sh_size, size)))
			return false;
	return true;
}

size_t elf_file_build_id(const struct elf_file *file, uint8_t *build_id)
{
	Elf *elf = file->elf;
	uint64_t sections = ELF_NOTES_MAX, segments = ELF_NOTES_MAX;
	size_t count = 0, size;
	GElf_Phdr segment;
	GElf_Shdr header;
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_NOTE &&
		    (size = build_id_in(elf_file_data(section, &sections), build_id)))
			return size;
	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++) {
		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_NOTE ||
		    segment.p_filesz > segments)
			continue;
		segments -= segment.p_filesz;
		size = build_id_in(elf_getdata_rawchunk(elf, (int64_t)segment.p_offset,
							segment.p_filesz, ELF_T_NHDR),
				   build_id);
		if (size)
			return size;
	}
	return 0;
}

int elf_file_check(const struct elf_file *file, struct span wanted)
{
	uint8_t found[ELF_BUILD_ID_MAX] = { 0 };
	uint8_t padded[ELF_BUILD_ID_MAX] = { 0 };
	size_t size;

	if (!wanted.size)
		return 0;
	size = elf_file_build_id(file, found);
	memcpy(padded, wanted.data, wanted.size < sizeof(padded) ? wanted.size : sizeof(padded));
	if (size && size <= wanted.size && !memcmp(found, padded, sizeof(found)))
		return 0;
	return error_set(-ESTALE, "%s is not the build that was recorded: its build id differs",
			 file->path);
}

void elf_file_segments(const struct elf_file *file, struct elf_segments *segments)
{
	Elf *elf = file->elf;
	size_t count = 0;

	segments->count = 0;
	elf_getphdrnum(elf, &count);
	for (size_t i = 0;
	     i < count && segments->count < sizeof(segments->loaded) / sizeof(segments->loaded[0]);
	     i++) {
		GElf_Phdr *segment = &segments->loaded[segments->count];

		if (gelf_getphdr(elf, (int)i, segment) && segment->p_type == PT_LOAD)
			segments->count++;
	}
}

bool elf_segments_offset(const struct elf_segments *segments, uint64_t address, uint64_t *offset)
{
	for (size_t i = 0; i < segments->count; i++) {
		const GElf_Phdr *segment = &segments->loaded[i];

		if (address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz) {
			*offset = address - segment->p_vaddr + segment->p_offset;
			return true;
		}
	}
	return false;
}

bool elf_segments_address(const struct elf_segments *segments, uint64_t offset, uint64_t *address)
{
	for (size_t i = 0; i < segments->count; i++) {
		const GElf_Phdr *segment = &segments->loaded[i];

		if (segment->p_flags & PF_X && offset >= segment->p_offset &&
		    offset - segment->p_offset < segment->p_filesz) {
			*address = offset - segment->p_offset + segment->p_vaddr;
			return true;
		}
	}
	return false;
}
