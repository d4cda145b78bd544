/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-text FILE OFFSET: writes the code of the running kernel, including all patches since boot,
 * from _text to _etext, to FILE at OFFSET. Reads it from /proc/kcore.
 */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENTS_MAX 64

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "kernel-text: %s\n", what);
	exit(1);
}

static void find_code(uint64_t *start, uint64_t *end)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[1024], name[512];
	uint64_t address;

	check(file != NULL, "no /proc/kallsyms");
	*start = *end = 0;
	while (!*end && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 " %*c %511s", &address, name) != 2)
			continue;
		if (!strcmp(name, "_text"))
			*start = address;
		if (!strcmp(name, "_etext"))
			*end = address;
	}
	fclose(file);
	check(*start && *end > *start, "no _text in /proc/kallsyms");
}

/* The file offset of [start, end). */
static uint64_t place_of(int file, uint64_t start, uint64_t end)
{
	Elf64_Phdr segments[SEGMENTS_MAX];
	Elf64_Ehdr header;
	ssize_t size;

	check(pread(file, &header, sizeof(header), 0) == sizeof(header),
	      "no header in /proc/kcore");
	check(header.e_phnum <= SEGMENTS_MAX, "too many segments in /proc/kcore");
	size = (ssize_t)(header.e_phnum * sizeof(segments[0]));
	check(pread(file, segments, (size_t)size, (off_t)header.e_phoff) == size,
	      "no segments in /proc/kcore");
	for (unsigned int i = 0; i < header.e_phnum; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr <= start &&
		    end - segments[i].p_vaddr <= segments[i].p_memsz)
			return segments[i].p_offset + (start - segments[i].p_vaddr);
	check(0, "no code in /proc/kcore");
	return 0;
}

static void copy(int from, uint64_t place, int to, uint64_t offset, uint64_t size)
{
	static char bytes[256 << 10];

	for (uint64_t done = 0; done < size;) {
		size_t now = size - done < sizeof(bytes) ? (size_t)(size - done) : sizeof(bytes);
		ssize_t got = pread(from, bytes, now, (off_t)(place + done));

		check(got > 0, "/proc/kcore can not be read");
		check(pwrite(to, bytes, (size_t)got, (off_t)(offset + done)) == got,
		      "can not write");
		done += (uint64_t)got;
	}
}

int main(int argc, char **argv)
{
	int from = open("/proc/kcore", O_RDONLY), to;
	uint64_t start, end;

	check(argc == 3, "usage: kernel-text FILE OFFSET");
	check(from >= 0, "no /proc/kcore");
	to = open(argv[1], O_WRONLY);
	check(to >= 0, argv[1]);
	find_code(&start, &end);
	copy(from, place_of(from, start, end), to, strtoull(argv[2], NULL, 0), end - start);
	close(to);
	return 0;
}
