/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_program.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/symbols/elf_symbols.h"

static int map_segment(struct perf_data_writer *writer, const GElf_Phdr *segment,
		       const struct perf_data_mapping *program)
{
	struct perf_data_mapping mapping = *program;

	if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || !segment->p_memsz)
		return 0;
	mapping.start = segment->p_vaddr;
	mapping.size = segment->p_memsz;
	mapping.offset = segment->p_offset;
	return perf_data_writer_mapping(writer, &mapping);
}

static int map_segments(struct perf_data_writer *writer, Elf *elf,
			const struct perf_data_mapping *program)
{
	size_t count;
	int error = 0;

	if (!elf || elf_getphdrnum(elf, &count))
		return error_set(-EINVAL, "%s is no ELF file with program headers", program->name);
	for (size_t i = 0; !error && i < count; i++) {
		GElf_Phdr segment;

		if (gelf_getphdr(elf, (int)i, &segment))
			error = map_segment(writer, &segment, program);
	}
	return error;
}

/* perf opens the file by this name, wherever it is started. */
int collector_map_program(struct perf_data_writer *writer, const char *path, pid_t pid)
{
	uint8_t build_id[ELF_BUILD_ID_MAX];
	char name[PATH_MAX];
	struct perf_data_mapping program = {
		.pid = pid, .tid = pid, .name = name, .build_id = build_id
	};
	int fd, error, size;
	Elf *elf;

	if (!realpath(path, name))
		return error_set(-errno, "cannot find %s: %s", path, strerror(errno));
	size = elf_build_id(name, build_id);
	program.build_id_size = size > 0 ? (size_t)size : 0;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	error = map_segments(writer, elf, &program);
	elf_end(elf);
	close(fd);
	return error;
}
