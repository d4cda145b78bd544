/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/image_symbols.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"
#include "vmm/symbols/image_file.h"
#include "vmm/symbols/installed_symbols.h"
#include "vmm/symbols/symbol_paths.h"

static const uint8_t build_id[20] = { 0xab, 0xcd, [19] = 1 };

struct table {
	struct agent_symbols head;
	Elf64_Phdr segment;
	Elf64_Sym symbols[2];
	char strings[16];
} __attribute__((packed));

/* A table with COUNT functions. */
static struct table table_of(uint32_t section, unsigned int count)
{
	struct table table = {
		.head = { section, 1, sizeof(table.symbols), sizeof(table.strings) },
		.segment = { .p_type = PT_LOAD,
			     .p_flags = PF_X,
			     .p_vaddr = 0x400000,
			     .p_filesz = 0x1000,
			     .p_memsz = 0x1000 },
		.strings = "\0exported\0own",
	};

	for (unsigned int i = 0; i < count; i++)
		table.symbols[i] = (Elf64_Sym){ .st_name = i ? 10 : 1,
						.st_info = STT_FUNC,
						.st_shndx = 12,
						.st_value = 0x400010 + 16 * i,
						.st_size = 16 };
	return table;
}

static bool has_room(void *context)
{
	(void)context;
	return true;
}

struct setting {
	char directory[64];
	struct build_id_cache_location place;
	struct image_symbols memory, agent; /* two sources of one session */
};

static void enter(struct setting *setting, size_t limit)
{
	strcpy(setting->directory, "/tmp/kvmscope-test-XXXXXX");
	REQUIRE(mkdtemp(setting->directory));
	setting->place = (struct build_id_cache_location){ .directory = setting->directory,
							   .has_room = has_room };
	REQUIRE_EQUAL(image_symbols_open(&setting->memory, &setting->place, limit), 0);
	REQUIRE_EQUAL(image_symbols_open(&setting->agent, &setting->place, limit), 0);
}

static void leave(struct setting *setting)
{
	char command[128];

	image_symbols_close(&setting->memory);
	image_symbols_close(&setting->agent);
	snprintf(command, sizeof(command), "rm -rf %s", setting->directory);
	CHECK_EQUAL(system(command), 0);
}

static void memory_tells(struct setting *setting, struct table table)
{
	image_symbols_add(&setting->memory, span_of(&table, sizeof(table)),
			  span_of(build_id, sizeof(build_id)));
}

static void agent_tells(struct setting *setting, struct table table)
{
	image_symbols_replace(&setting->agent, span_of(&table, sizeof(table)),
			      span_of(build_id, sizeof(build_id)));
}

static bool has(struct setting *setting)
{
	return image_symbols_has(&setting->agent, span_of(build_id, sizeof(build_id)));
}

static bool has_all(const struct setting *setting)
{
	return image_symbols_has_all(&setting->agent, span_of(build_id, sizeof(build_id)));
}

TEST(image_symbols, from_memory_are_replaced_by_complete_ones)
{
	struct setting setting;

	enter(&setting, 1 << 20);
	CHECK(!has_all(&setting));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has(&setting));
	CHECK(!has_all(&setting));
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	CHECK(has_all(&setting));
	CHECK_EQUAL(setting.agent.statistics.added, 1);
	leave(&setting);
}

/* A guest is not asked in every recording; but symbols may be installed in it later. */
TEST(image_symbols, that_are_exhausted_count_as_complete_for_a_day)
{
	char command[256];
	struct setting setting;

	enter(&setting, 1 << 20);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has_all(&setting));
	snprintf(command, sizeof(command), "touch -d '23 hours ago' '%s/%s'/*/elf",
		 setting.directory, BUILD_ID_CACHE_IMAGES);
	CHECK_EQUAL(system(command), 0);
	CHECK(has_all(&setting));
	snprintf(command, sizeof(command), "touch -d '25 hours ago' '%s/%s'/*/elf",
		 setting.directory, BUILD_ID_CACHE_IMAGES);
	CHECK_EQUAL(system(command), 0);
	CHECK(!has_all(&setting));
	CHECK(has(&setting));
	agent_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has_all(&setting));
	leave(&setting);
}

TEST(image_symbols, that_are_complete_stay)
{
	struct setting setting;

	enter(&setting, 1 << 20);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	agent_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has_all(&setting));
	CHECK_EQUAL(setting.memory.statistics.added, 0);
	CHECK_EQUAL(setting.agent.statistics.added, 1);
	leave(&setting);
}

/* Removes the version from the cached file, as in files of the first builds. */
static void make_earlier(const struct setting *setting)
{
	char command[256];

	snprintf(command, sizeof(command), "LC_ALL=C sed -i s/kvmscope/nobodys_/g '%s/%s'/*/elf",
		 setting->directory, BUILD_ID_CACHE_IMAGES);
	CHECK_EQUAL(system(command), 0);
}

/* Those may have names in them that are wrong: of symbols without a size, up to the next one. */
TEST(image_symbols, of_an_earlier_version_are_replaced_even_by_fewer)
{
	struct setting setting;

	enter(&setting, 1 << 20);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	make_earlier(&setting);
	CHECK(!has(&setting));
	CHECK(!has_all(&setting));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK_EQUAL(setting.memory.statistics.added, 1);
	CHECK(has(&setting));
	make_earlier(&setting);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 1));
	CHECK(has_all(&setting));
	leave(&setting);
}

/* Files of other programs are never replaced. */
TEST(image_symbols, of_others_stay)
{
	struct setting setting;
	char command[512];

	enter(&setting, 1 << 20);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	make_earlier(&setting);
	snprintf(
		command, sizeof(command),
		"cd '%s' && mkdir other && mv '%s'/* other && ln -sfn ../../other/$(ls other) .build-id/ab/*",
		setting.directory, BUILD_ID_CACHE_IMAGES);
	CHECK_EQUAL(system(command), 0);
	CHECK(has_all(&setting));
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	CHECK_EQUAL(setting.agent.statistics.added, 1);
	leave(&setting);
}

/* A file below ROOT of the setting's directory, with all functions of BUILD: another place of the
 * file has the code there. */
static void install_separate(const struct setting *setting, const uint8_t *build,
			     struct table table)
{
	char path[256], command[512];
	struct bytes file;
	FILE *to;

	table.segment.p_offset = 0x7000;
	image_file_make(&file, span_of(&table, sizeof(table)), span_of(build, sizeof(build_id)),
			false);
	REQUIRE(file.size);
	REQUIRE(symbol_paths_installed_debug(path, setting->directory,
					     span_of(build_id, sizeof(build_id))));
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", path);
	CHECK_EQUAL(system(command), 0);
	to = fopen(path, "we");
	REQUIRE(to);
	CHECK_EQUAL(fwrite(file.data, file.size, 1, to), 1);
	fclose(to);
	free(file.data);
}

TEST(image_symbols, of_a_stripped_file_come_from_an_installed_one)
{
	struct symbols *symbols;
	struct setting setting;
	struct symbol symbol;
	char path[4096];

	enter(&setting, 1 << 20);
	setting.memory.installed = setting.directory;
	install_separate(&setting, build_id, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has_all(&setting));
	REQUIRE(symbol_paths_cached(path, setting.directory, span_of(build_id, sizeof(build_id)),
				    "elf"));
	REQUIRE_EQUAL(elf_symbols_load(&symbols, path, ELF_FILE_OFFSETS, (struct span){ 0 }), 0);
	REQUIRE(symbols_find(symbols, 0x20, &symbol));
	CHECK_STRING(symbol.name, "own");
	symbols_free(symbols);
	leave(&setting);
}

TEST(image_symbols, that_are_complete_need_no_separate_file)
{
	struct table table = table_of(AGENT_SYMBOLS_SYMTAB, 2);
	struct bytes all = { .data = (uint8_t *)&table, .size = sizeof(table) };

	CHECK(!installed_symbols_add(&all, span_of(&table, sizeof(table)), "",
				     span_of(build_id, sizeof(build_id))));
	CHECK(!all.data && !all.size); /* nothing to free */
}

/* They were added before the separate file was installed. */
TEST(image_symbols, of_a_stripped_file_are_replaced_by_installed_ones)
{
	struct setting setting;

	enter(&setting, 1 << 20);
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	setting.memory.installed = setting.agent.installed = setting.directory;
	CHECK(has(&setting));
	install_separate(&setting, build_id, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	CHECK(!has(&setting));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has(&setting));
	CHECK(has_all(&setting));
	CHECK_EQUAL(setting.agent.statistics.misread, 0);
	leave(&setting);
}

/* A file that perf added is kept: kvmscope warns that perf misreads it. */
TEST(image_symbols, that_perf_misreads_are_reported)
{
	struct setting setting;
	char command[512];

	enter(&setting, 1 << 20);
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	snprintf(command, sizeof(command),
		 "cd %s && mv '[guest.user]' libc.so.6 && link=$(echo .build-id/*/*) && "
		 "ln -sfn ../../libc.so.6/$(ls libc.so.6) $link",
		 setting.directory);
	CHECK_EQUAL(system(command), 0);
	install_separate(&setting, build_id, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	CHECK(has(&setting));
	CHECK_EQUAL(setting.agent.statistics.misread, 0);
	setting.agent.installed = setting.directory;
	CHECK(has(&setting));
	CHECK_EQUAL(setting.agent.statistics.misread, 1);
	leave(&setting);
}

TEST(image_symbols, never_come_from_another_build)
{
	static const uint8_t other[sizeof(build_id)] = { 0xab, 0xce, [19] = 1 };
	struct setting setting;

	enter(&setting, 1 << 20);
	setting.memory.installed = setting.directory;
	install_separate(&setting, other, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK(has(&setting));
	CHECK(!has_all(&setting));
	leave(&setting);
}

/* Memory told of it before the agent did, and goes past its limit after that. */
TEST(image_symbols, of_the_agent_stay_when_those_of_memory_exceed_the_limit)
{
	static const uint8_t other[sizeof(build_id)] = { 0xef, 0x01, [19] = 1 };
	struct table table = table_of(AGENT_SYMBOLS_SYMTAB, 2);
	struct setting setting;

	enter(&setting, 1000);
	memory_tells(&setting, table_of(AGENT_SYMBOLS_DYNSYM, 1));
	CHECK_EQUAL(setting.memory.statistics.added, 1);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	image_symbols_add(&setting.memory, span_of(&table, sizeof(table)),
			  span_of(other, sizeof(other)));
	CHECK_EQUAL(setting.memory.statistics.dropped, 1);
	CHECK(has_all(&setting));
	CHECK(image_symbols_has_all(&setting.memory, span_of(other, sizeof(other))));
	leave(&setting);
}

TEST(image_symbols, that_come_twice_are_counted_once)
{
	struct setting setting;
	size_t bytes;

	enter(&setting, 1 << 20);
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	bytes = setting.agent.bytes;
	agent_tells(&setting, table_of(AGENT_SYMBOLS_SYMTAB, 2));
	CHECK_EQUAL(setting.agent.statistics.added, 1);
	CHECK_EQUAL(setting.agent.bytes, bytes);
	CHECK_EQUAL(setting.agent.statistics.dropped, 0);
	CHECK(has_all(&setting));
	leave(&setting);
}
