/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the stubs of procedure linkage tables. They are compared with objdump's for files
 * that gcc builds here, and with the targets of the slots of the running C library.
 */
#include "shared/elf_stubs.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/image_file.h"
#include "vmm/symbols/installed_symbols.h"

/* Functions that are called, one of C++, and one whose address is taken, too. */
#define CODE                                                                                                 \
	"extern int first(void), second(void), third(void), both(void), mangled(void) __asm__(\"_Z3foov\");" \
	"__attribute__((noinline, used)) static int hidden(void) { return third(); }"                        \
	"void *address(void) { return (void *)both; }"                                                       \
	"int all(void) { return hidden() + first() + both() + second() + mangled() + both(); }"
#define FUNCTIONS 5

struct file {
	char path[64];
	int fd;
	uint64_t limit; /* bytes from here on are not there */
};

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	const struct file *file = context;

	if (offset > file->limit || size > file->limit - offset)
		return -EFAULT;
	return pread(file->fd, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

static bool open_file(struct file *file, const char *path)
{
	snprintf(file->path, sizeof(file->path), "%s", path);
	file->fd = open(path, O_RDWR | O_CLOEXEC);
	if (file->fd < 0)
		file->fd = open(path, O_RDONLY | O_CLOEXEC);
	file->limit = UINT64_MAX;
	return file->fd >= 0;
}

/* Builds a library from CODE with gcc, for the caller to remove. False on failure. */
static bool make_library(struct file *file, const char *options)
{
	char path[] = "/tmp/kvmscope-stubs-XXXXXX";
	int fd = mkstemp(path), status = -1;

	if (fd < 0)
		return false;
	close(fd);
	free(command_output(
		&status,
		"echo '%s' | gcc -x c -O1 -shared -fPIC -Wl,--build-id=sha1 %s -o %s - 2>&1", CODE,
		options, path));
	if (!status && open_file(file, path))
		return true;
	unlink(path);
	return false;
}

static void remove_library(struct file *file)
{
	close(file->fd);
	unlink(file->path);
}

static bool find(struct file *file, struct elf_stubs *stubs)
{
	return !elf_stubs_find(&(struct elf_source){ .read = read_file, .context = file }, stubs);
}

static const char *name_of(const struct elf_stubs *stubs, uint32_t number)
{
	return stubs->strings + stubs->symbols[number].st_name;
}

/* NULL: no stub that is called NAME. */
static const Elf64_Sym *find_name(const struct elf_stubs *stubs, const char *name)
{
	for (uint32_t i = 0; i < stubs->count; i++)
		if (!strcmp(name_of(stubs, i), name))
			return &stubs->symbols[i];
	return NULL;
}

/* objdump's output for a file: lines "ADDRESS NAME@plt", by address. */
static char *told_by_objdump(const struct file *file)
{
	return command_output(
		NULL,
		"objdump -d -j .plt -j .plt.sec -j .plt.got %s 2>/dev/null | "
		"sed -nE 's/^0*([0-9a-f]+) <([^ ]+@plt)>:$/\\1 \\2/p' | grep -v '[*]ABS' | sort",
		file->path);
}

static char *found_by_us(const struct elf_stubs *stubs)
{
	char lines[16384] = "";
	size_t length = 0;

	for (uint32_t i = 0; i < stubs->count && length < sizeof(lines) - 256; i++) {
		const char *name = name_of(stubs, i);
		size_t size = strlen(name);

		if (*name == '<') {
			name++;
			size -= 2;
		}
		length += (size_t)snprintf(lines + length, sizeof(lines) - length, "%llx %.*s\n",
					   (unsigned long long)stubs->symbols[i].st_value,
					   (int)size, name);
	}
	return command_output(NULL, "sort <<'END'\n%sEND", lines);
}

static void check_as_objdump(const char *options)
{
	struct elf_stubs stubs;
	struct file file;
	char *expected, *found;

	if (!make_library(&file, options)) {
		FAIL_TEST("gcc %s makes no library", options);
		return;
	}
	CHECK(find(&file, &stubs));
	expected = told_by_objdump(&file);
	found = found_by_us(&stubs);
	if (strcmp(found, expected) != 0)
		FAIL_TEST("%s: found\n%sobjdump has\n%s", options, found, expected);
	for (size_t i = 0; i < FUNCTIONS; i++) {
		static const char *const names[FUNCTIONS] = { "first@plt", "second@plt",
							      "third@plt", "both@plt",
							      "<_Z3foov@plt>" };

		CHECK(find_name(&stubs, names[i]) != NULL);
	}
	free(expected);
	free(found);
	elf_stubs_free(&stubs);
	remove_library(&file);
}

/* Lazy binding and none; with indirect branch tracking; a slot that is shared with data; other
 * linkers. */
TEST(elf_stubs, of_libraries_match_objdump)
{
	static const char *const options[] = {
		"-Wl,-z,lazy",
		"-Wl,-z,now",
		"-fcf-protection -Wl,-z,lazy,-z,ibtplt",
		"-fcf-protection -Wl,-z,now,-z,ibtplt",
		"-s",
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		check_as_objdump(options[i]);
	if (command_succeeds("command -v ld.gold"))
		check_as_objdump("-fuse-ld=gold");
	if (command_succeeds("command -v ld.lld"))
		check_as_objdump("-fuse-ld=lld");
}

/* A JMP through a slot in a function's own code is not a stub. */
TEST(elf_stubs, are_none_where_functions_jump_themselves)
{
	struct elf_stubs stubs;
	struct file file;

	REQUIRE(make_library(&file, "-O2 -fno-plt -nostartfiles"));
	CHECK(find(&file, &stubs));
	CHECK_EQUAL(stubs.count, 0);
	elf_stubs_free(&stubs);
	remove_library(&file);
}

/* The code sections of FILE extend far past its end, without stubs there. */
static void make_endless(const struct file *file)
{
	Elf64_Ehdr header;
	Elf64_Shdr section;

	CHECK_EQUAL(pread(file->fd, &header, sizeof(header), 0), sizeof(header));
	for (unsigned int i = 0; i < header.e_shnum; i++) {
		const off_t at = (off_t)(header.e_shoff + i * sizeof(section));

		CHECK_EQUAL(pread(file->fd, &section, sizeof(section), at), sizeof(section));
		if (section.sh_flags & SHF_EXECINSTR)
			section.sh_size = 1ull << 60;
		CHECK_EQUAL(pwrite(file->fd, &section, sizeof(section), at), sizeof(section));
	}
}

struct hole {
	int fd;
	unsigned int reads;
};

static int read_hole(void *context, uint64_t offset, void *to, size_t size)
{
	struct hole *hole = context;

	memset(to, 0, size);
	hole->reads++;
	return offset <= INT64_MAX && pread(hole->fd, to, size, (off_t)offset) >= 0 ? 0 : -EFAULT;
}

TEST(elf_stubs, are_searched_in_a_bounded_amount_of_code)
{
	struct elf_stubs stubs;
	struct file file;
	struct hole hole;

	REQUIRE(make_library(&file, "-Wl,-z,now"));
	make_endless(&file);
	hole = (struct hole){ .fd = file.fd };
	CHECK_EQUAL(
		elf_stubs_find(&(struct elf_source){ .read = read_hole, .context = &hole }, &stubs),
		0);
	CHECK(find_name(&stubs, "first@plt") != NULL);
	CHECK(hole.reads < 5000);
	elf_stubs_free(&stubs);
	remove_library(&file);
}

static Elf64_Shdr section_of(const struct file *file, uint32_t type, uint64_t flags)
{
	Elf64_Ehdr header;
	Elf64_Shdr section = { 0 };

	CHECK_EQUAL(pread(file->fd, &header, sizeof(header), 0), sizeof(header));
	for (unsigned int i = 0; i < header.e_shnum; i++) {
		CHECK_EQUAL(pread(file->fd, &section, sizeof(section),
				  (off_t)(header.e_shoff + i * sizeof(section))),
			    sizeof(section));
		if (section.sh_type == type && (section.sh_flags & flags) == flags)
			return section;
	}
	FAIL_TEST("%s has no section of type %u", file->path, type);
	return section;
}

/* Exchanges the first two relocations of a library's slots, whole or without their
 * offsets. */
static void exchange(const struct file *file, bool wholly)
{
	Elf64_Shdr section = section_of(file, SHT_RELA, SHF_INFO_LINK);
	Elf64_Rela two[2], other[2];

	CHECK_EQUAL(pread(file->fd, two, sizeof(two), (off_t)section.sh_offset), sizeof(two));
	other[0] = two[1];
	other[1] = two[0];
	if (!wholly) {
		other[0].r_offset = two[0].r_offset;
		other[1].r_offset = two[1].r_offset;
	}
	CHECK_EQUAL(pwrite(file->fd, other, sizeof(other), (off_t)section.sh_offset),
		    sizeof(other));
}

/* As of the C library, whose relocations are in another order than its stubs. */
TEST(elf_stubs, are_identified_by_slot_and_not_by_position)
{
	struct elf_stubs before, after;
	struct file file;

	REQUIRE(make_library(&file, "-Wl,-z,lazy"));
	CHECK(find(&file, &before) && before.count >= FUNCTIONS);
	exchange(&file, true);
	CHECK(find(&file, &after));
	CHECK_EQUAL(after.count, before.count);
	CHECK(!memcmp(after.strings, before.strings, before.size));
	elf_stubs_free(&after);
	exchange(&file, false);
	CHECK(find(&file, &after));
	CHECK_EQUAL(after.count, before.count);
	CHECK(memcmp(after.strings, before.strings, before.size) != 0);
	elf_stubs_free(&after);
	elf_stubs_free(&before);
	remove_library(&file);
}

/* A slot that no relocation fills, or one of another kind, has no name; nor has code that jumps
 * elsewhere. */
TEST(elf_stubs, have_no_name_without_proof)
{
	struct elf_stubs stubs;
	Elf64_Shdr section;
	Elf64_Rela first;
	struct file file;

	REQUIRE(make_library(&file, "-Wl,-z,lazy -nostartfiles"));
	CHECK(find(&file, &stubs));
	CHECK_EQUAL(stubs.count, FUNCTIONS);
	elf_stubs_free(&stubs);
	section = section_of(&file, SHT_RELA, SHF_INFO_LINK);
	CHECK_EQUAL(pread(file.fd, &first, sizeof(first), (off_t)section.sh_offset), sizeof(first));
	first.r_info = ELF64_R_INFO(ELF64_R_SYM(first.r_info), R_X86_64_64);
	CHECK_EQUAL(pwrite(file.fd, &first, sizeof(first), (off_t)section.sh_offset),
		    sizeof(first));
	CHECK(find(&file, &stubs));
	CHECK_EQUAL(stubs.count, FUNCTIONS - 1);
	elf_stubs_free(&stubs);
	remove_library(&file);
}

/* Truncated at any byte. */
TEST(elf_stubs, are_none_of_a_file_that_is_there_in_part)
{
	struct elf_stubs stubs;
	struct file file;
	off_t size;

	REQUIRE(make_library(&file, ""));
	size = lseek(file.fd, 0, SEEK_END);
	for (file.limit = 0; file.limit < (uint64_t)size; file.limit += 97) {
		CHECK(!find(&file, &stubs));
		CHECK(!stubs.count && !stubs.symbols && !stubs.strings);
	}
	file.limit = (uint64_t)size;
	CHECK(find(&file, &stubs) && stubs.count);
	elf_stubs_free(&stubs);
	remove_library(&file);
}

static int find_libc(struct dl_phdr_info *info, size_t size, void *context)
{
	struct dl_phdr_info *libc = context;

	if (!strstr(info->dlpi_name, "/libc.so.6"))
		return 0;
	*libc = *info;
	return 1;
}

/* Where the stub at CODE in this process leads to. */
static const void *target_of(const uint8_t *code)
{
	const uint8_t *jump = memcmp(code, "\xf3\x0f\x1e\xfa", 4) ? code : code + 4;
	int32_t distance;
	const void *target;

	jump += *jump == 0xf2;
	memcpy(&distance, jump + 2, sizeof(distance));
	memcpy(&target, jump + 6 + distance, sizeof(target));
	return target;
}

/* Whoever else may be called so: sanitizers have a malloc() of their own. */
static bool is_called(const void *function, void *library, const char *stub)
{
	char name[256];

	snprintf(name, sizeof(name), "%s", stub);
	*strchr(name, '@') = '\0';
	return dlsym(library, name) == function || dlsym(RTLD_DEFAULT, name) == function;
}

/* What it calls of its own, strlen() and others, by slots that it fills itself as it is loaded. */
TEST(elf_stubs, of_the_c_library_lead_to_what_they_are_called_by)
{
	struct dl_phdr_info libc = { 0 };
	struct elf_stubs stubs;
	unsigned int right = 0;
	struct file file;
	void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	dl_iterate_phdr(find_libc, &libc);
	REQUIRE(library && libc.dlpi_name && open_file(&file, libc.dlpi_name));
	CHECK(find(&file, &stubs));
	for (uint32_t i = 0; i < stubs.count; i++) {
		const uint8_t *code = (const uint8_t *)(libc.dlpi_addr + stubs.symbols[i].st_value);
		const uint8_t *target = target_of(code);

		/* The slot of what was not called yet leads back. */
		if ((size_t)(target - code) < stubs.symbols[i].st_size)
			continue;
		if (is_called(target, library, name_of(&stubs, i)))
			right++;
		else if (!strstr(name_of(&stubs, i), "_dl_"))
			FAIL_TEST("%s leads elsewhere", name_of(&stubs, i));
	}
	CHECK(right > 20);
	elf_stubs_free(&stubs);
	close(file.fd);
	dlclose(library);
}

/* The address of the stub of first() in the file at PATH, by its table's names. */
static uint64_t offset_of_first(const char *path)
{
	struct symbols *symbols;
	struct symbol symbol = { 0 };

	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, (struct span){ 0 }))
		return 0;
	CHECK(symbols_find_name(symbols, "first@plt", &symbol));
	CHECK(symbols_find_name(symbols, "<_Z3foov@plt>", &symbol));
	CHECK(symbols_find_name(symbols, "first@plt", &symbol));
	CHECK_EQUAL(symbol.end - symbol.start, 16);
	symbols_free(symbols);
	return symbol.start;
}

/* As the guest agent and introspection report it, for the caller to free. */
static struct bytes table_of(struct file *file)
{
	const struct elf_source source = { .read = read_file, .context = file };
	struct elf_tables tables;
	struct elf_stubs stubs;
	struct bytes table = { 0 };

	CHECK_EQUAL(elf_tables_find(&source, &tables), 0);
	CHECK(find(file, &stubs));
	CHECK_EQUAL(image_table_read(&table, &source, &tables, &stubs), 0);
	elf_stubs_free(&stubs);
	return table;
}

/* The file of names that is made of TABLE, at PATH, which ends in XXXXXX. */
static void write_names(char *path, struct bytes table, const uint8_t *build_id)
{
	int fd = mkstemp(path);
	struct bytes names;

	image_file_make(&names, span_of(table.data, table.size),
			span_of(build_id, ELF_BUILD_ID_MAX), false);
	CHECK(fd >= 0 && write(fd, names.data, names.size) == (ssize_t)names.size);
	close(fd);
	free(names.data);
}

/* NULL: it cannot be built. */
static struct symbols *named_by(struct bytes table)
{
	static const uint8_t build_id[ELF_BUILD_ID_MAX] = { 1 };
	char path[] = "/tmp/kvmscope-names-XXXXXX";
	struct symbols *symbols = NULL;

	write_names(path, table, build_id);
	if (elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, span_of(build_id, sizeof(build_id))))
		symbols = NULL;
	unlink(path);
	return symbols;
}

static void check_names(struct bytes table, uint64_t first, bool hidden)
{
	struct symbols *symbols = named_by(table);
	struct symbol symbol;

	REQUIRE(symbols != NULL);
	CHECK(symbols_find_name(symbols, "all", &symbol));
	CHECK_EQUAL(symbols_find_name(symbols, "hidden", &symbol), hidden);
	CHECK(symbols_find_name(symbols, "<_Z3foov@plt>", &symbol));
	REQUIRE(symbols_find(symbols, first + 6, &symbol));
	CHECK_STRING(symbol.name, "first@plt");
	CHECK_EQUAL(symbol.start, first);
	CHECK_EQUAL(symbol.end, first + 16);
	symbols_free(symbols);
}

TEST(elf_stubs, are_in_files_of_names_as_in_the_file_itself)
{
	static const char *const options[] = { "", "-s" };

	for (int stripped = 0; stripped < 2; stripped++) {
		struct bytes table;
		struct file file;

		REQUIRE(make_library(&file, options[stripped]));
		table = table_of(&file);
		check_names(table, offset_of_first(file.path), !stripped);
		free(table.data);
		remove_library(&file);
	}
}

static void check_separate(const char *debug, const char *path, const uint8_t *build_id,
			   uint64_t first)
{
	struct symbols *symbols;
	struct symbol symbol;

	REQUIRE_EQUAL(elf_symbols_load_separate(&symbols, debug, path,
						span_of(build_id, ELF_BUILD_ID_MAX)),
		      0);
	CHECK(symbols_find_name(symbols, "hidden", &symbol));
	REQUIRE(symbols_find(symbols, first, &symbol));
	CHECK_STRING(symbol.name, "first@plt");
	CHECK_EQUAL(symbol.start, first);
	symbols_free(symbols);
}

/* One has the stubs' code, or their names, the other one the names of all functions. */
TEST(elf_stubs, stay_where_a_separate_file_has_the_symbols)
{
	char root[] = "/tmp/kvmscope-root-XXXXXX", debug[256], hex[2 * ELF_BUILD_ID_MAX + 1];
	char names[] = "/tmp/kvmscope-names-XXXXXX";
	uint8_t build_id[ELF_BUILD_ID_MAX];
	struct bytes table, all;
	struct file file;
	uint64_t first;
	int status = -1;

	REQUIRE(mkdtemp(root) && make_library(&file, "-Wl,-z,now"));
	REQUIRE_EQUAL(elf_build_id(file.path, build_id), ELF_BUILD_ID_MAX);
	for (int i = 0; i < ELF_BUILD_ID_MAX; i++)
		snprintf(hex + 2ul * (size_t)i, 3, "%02x", build_id[i]);
	snprintf(debug, sizeof(debug), "%s/usr/lib/debug/.build-id/%.2s/%s.debug", root, hex,
		 hex + 2);
	free(command_output(&status,
			    "mkdir -p $(dirname %s) && objcopy --only-keep-debug %s %s && strip %s",
			    debug, file.path, debug, file.path));
	REQUIRE_EQUAL(status, 0);
	close(file.fd);
	file.fd = open(file.path, O_RDONLY | O_CLOEXEC);
	REQUIRE(file.fd >= 0);
	first = offset_of_first(file.path);
	table = table_of(&file);
	REQUIRE(installed_symbols_add(&all, span_of(table.data, table.size), root,
				      span_of(build_id, sizeof(build_id))));
	check_names(all, first, true);
	check_separate(debug, file.path, build_id, first);
	write_names(names, table, build_id);
	check_separate(debug, names, build_id, first);
	unlink(names);
	free(all.data);
	free(table.data);
	free(command_output(NULL, "rm -r %s", root));
	remove_library(&file);
}
