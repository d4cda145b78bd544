/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/kernel_table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest-agent/mapped_build_id.h"
#include "shared/hash.h"
#include "shared/read_file.h"

#define NOTES_MAX 4096

/* "NAME SIZE USERS BY STATE ADDRESS" and more (kernel/module/procfs.c). */
static bool parse_line(const char *line, struct agent_module *module)
{
	*module = (struct agent_module){ 0 };
	return sscanf(line, "%63s %" SCNu64 " %*s %*s %*s %" SCNx64, module->name, &module->size,
		      &module->start) == 3;
}

/* The boot id: the kernel's address differs after each boot, even with the same modules. */
static uint64_t hash_boot(void)
{
	char id[64];

	return hash_add_bytes(
		HASH_START, id,
		read_small_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, sizeof(id)));
}

/* A reloaded module has another directory inode, even at the same address; 0: no directory. */
static uint64_t directory_of(const struct agent_module *module)
{
	struct stat status;
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/%s", module->name);
	return stat(path, &status) ? 0 : status.st_ino;
}

/* Lists the loaded modules in TABLE, which may be NULL; returns the hash of all. */
static uint64_t list_modules(struct kernel_table *table)
{
	FILE *file = fopen("/proc/modules", "re");
	uint64_t hash = hash_boot();
	struct agent_module module;
	uint64_t directory;
	char line[4096]; /* a long list of users is cut, and its rest is not parsed as a module */

	while (file && fgets(line, sizeof(line), file)) {
		if (!parse_line(line, &module))
			continue;
		/* Name, address and size. */
		hash = hash_add_bytes(hash, &module, offsetof(struct agent_module, text));
		directory = directory_of(&module);
		hash = hash_add_bytes(hash, &directory, sizeof(directory));
		if (table && table->head.modules < AGENT_KERNEL_MODULES_MAX)
			table->modules[table->head.modules++] = module;
	}
	if (file)
		fclose(file);
	return hash ? hash : 1;
}

uint64_t kernel_table_hash(void)
{
	return list_modules(NULL);
}

static uint64_t read_section(const struct agent_module *module, const char *section)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "/sys/module/%s/sections/%s", module->name, section);
	return read_small_file(AT_FDCWD, path, text, sizeof(text)) ? strtoull(text, NULL, 16) : 0;
}

static void read_module(struct agent_module *module)
{
	char path[128], notes[NOTES_MAX];

	module->text = read_section(module, ".text");
	module->init = read_section(module, ".init.text");
	module->exit = read_section(module, ".exit.text");
	module->note = read_section(module, ".note.gnu.build-id");
	snprintf(path, sizeof(path), "/sys/module/%s/notes/.note.gnu.build-id", module->name);
	module->build_id_size = (uint32_t)build_id_find(
		notes, read_small_file(AT_FDCWD, path, notes, sizeof(notes)), module->build_id);
}

void kernel_table_read(struct kernel_table *table)
{
	char notes[NOTES_MAX];

	*table = (struct kernel_table){ 0 };
	table->head.build_id_size = (uint32_t)build_id_find(
		notes, read_small_file(AT_FDCWD, "/sys/kernel/notes", notes, sizeof(notes)),
		table->head.build_id);
	table->head.modules_hash = list_modules(table);
	for (uint32_t i = 0; i < table->head.modules; i++)
		read_module(&table->modules[i]);
}

/* The first symbols are per-CPU and the first of them may be at 0, but not a page full of them. */
static bool has_addresses(const char *lines)
{
	for (const char *line = lines; line; line = strchr(line, '\n'), line += !!line)
		if (strtoull(line, NULL, 16))
			return true;
	return false;
}

int kernel_table_open_symbols(void)
{
	char lines[4096];
	int fd;

	if (read_small_file(AT_FDCWD, "/proc/kallsyms", lines, sizeof(lines)) &&
	    !has_addresses(lines))
		return -EPERM;
	fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
