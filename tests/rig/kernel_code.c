/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/kernel_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"

#define KERNEL_START 0xffffffff80000000ull

/* Names with a leading dot are labels inside of functions. */
static void read_symbol(struct kernel_code *code, const char *line)
{
	char name[512], module[80] = "", type;
	uint64_t address;

	if (sscanf(line, "%" SCNx64 " %c %511s %79s", &address, &type, name, module) < 3 ||
	    address < KERNEL_START || !strchr("tTwW", type) || *name == '.')
		return;
	if (!strcmp(name, "_text"))
		code->start = address;
	else if (!strcmp(name, "_etext"))
		code->end = address;
	else if (!strcmp(name, "__entry_text_start"))
		code->entry_start = address;
	else if (!strcmp(name, "__entry_text_end"))
		code->entry_end = address;
	else
		CHECK_EQUAL(
			symbols_add(code->symbols, address, 0, type, name, *module ? module : NULL),
			0);
}

static bool read_symbols(struct kernel_code *code, const char *path)
{
	char line[1024];
	FILE *file = fopen(path, "r");

	code->symbols = symbols_new();
	while (file && fgets(line, sizeof(line), file) && *line)
		read_symbol(code, line);
	if (file)
		fclose(file);
	symbols_finish(code->symbols);
	return file && code->entry_start && code->start && code->start < code->end;
}

static bool read_text(struct kernel_code *code, const char *path)
{
	size_t size = (size_t)(code->end - code->start);
	FILE *disk = fopen(path, "r");
	bool ok = false;

	code->text = malloc(size);
	if (disk) {
		ok = code->text && !fseek(disk, atol(KERNEL_TEXT_OFFSET), SEEK_SET) &&
		     fread(code->text, 1, size, disk) == size;
		fclose(disk);
	}
	return ok;
}

bool kernel_code_open(struct kernel_code *code, const char *kallsyms, const char *disk)
{
	*code = (struct kernel_code){ 0 };
	if (read_symbols(code, kallsyms) && read_text(code, disk))
		return true;
	FAIL_TEST("the kernel's code is not in %s and %s", kallsyms, disk);
	kernel_code_close(code);
	return false;
}

void kernel_code_close(struct kernel_code *code)
{
	symbols_free(code->symbols);
	free(code->text);
	free(code->jumps);
	*code = (struct kernel_code){ 0 };
}
