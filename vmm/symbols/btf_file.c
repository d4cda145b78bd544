/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/btf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/read_file.h"

#define SIZE_MAX_BTF (64u << 20)
#define MAGIC        "\x9f\xeb" /* Documentation/bpf/btf.rst */

static int copy(const void *bytes, size_t size, uint8_t **data, size_t *data_size)
{
	*data = malloc(size);
	if (!*data)
		return -ENOMEM;
	memcpy(*data, bytes, size);
	*data_size = size;
	return 0;
}

static int load_section(Elf *elf, uint8_t **data, size_t *size)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return -EINVAL;
	while ((section = elf_nextscn(elf, section))) {
		const char *name = NULL;
		Elf_Data *content;
		GElf_Shdr header;

		if (gelf_getshdr(section, &header) && header.sh_size <= SIZE_MAX_BTF)
			name = elf_strptr(elf, names, header.sh_name);
		content = name && !strcmp(name, ".BTF") ? elf_rawdata(section, NULL) : NULL;
		if (content && content->d_buf && content->d_size)
			return copy(content->d_buf, content->d_size, data, size);
	}
	return -EINVAL;
}

static int load_raw(int fd, uint8_t **data, size_t *size)
{
	char *text;
	int error = read_descriptor(fd, SIZE_MAX_BTF, &text, size);

	if (error)
		return error;
	*data = (uint8_t *)text;
	if (*size > 2 && !memcmp(text, MAGIC, 2))
		return 0;
	free(text);
	return -EINVAL;
}

static int load(int fd, uint8_t **data, size_t *size)
{
	Elf *elf;
	int error;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF)
		error = load_section(elf, data, size);
	else
		error = lseek(fd, 0, SEEK_SET) ? -errno : load_raw(fd, data, size);
	elf_end(elf);
	return error;
}

int btf_file_load(const char *path, uint8_t **data, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd < 0)
		return error_set(-errno, "cannot open %s: %m", path);
	error = load(fd, data, size);
	close(fd);
	if (error == -EINVAL)
		return error_set(
			error,
			"%s has no BTF: give an ELF file with a section .BTF, or a copy of "
			"/sys/kernel/btf/vmlinux",
			path);
	return error ? error_set(error, "cannot read %s: %s", path, strerror(-error)) : 0;
}
