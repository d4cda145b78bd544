/* SPDX-License-Identifier: Apache-2.0 */
/* Content of the build-id cache; tests/e2e/test_perf.c tests that perf finds it. */
#include "vmm/symbols/build_id_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/fake_guest.h"
#include "tests/unit/shim/test.h"

#define ID "1111111111111111111111111111111111111111"

struct place {
	char home[64], cache[128];
	char *former_home, *former_configuration;
};

static char *keep_variable(const char *name)
{
	return getenv(name) ? strdup(getenv(name)) : NULL;
}

static void restore_variable(const char *name, char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
	free(value);
}

static void enter(struct place *place)
{
	place->former_home = keep_variable("HOME");
	place->former_configuration = keep_variable("PERF_CONFIG");
	strcpy(place->home, "/tmp/kvmscope-test-XXXXXX");
	if (!mkdtemp(place->home))
		abort();
	setenv("HOME", place->home, 1);
	unsetenv("PERF_CONFIG");
	snprintf(place->cache, sizeof(place->cache), "%s/.debug", place->home);
}

static void leave(struct place *place)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", place->home);
	CHECK_EQUAL(system(command), 0);
	restore_variable("HOME", place->former_home);
	restore_variable("PERF_CONFIG", place->former_configuration);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	fputs(text, file);
	fclose(file);
}

TEST(build_id_cache, is_where_perf_looks)
{
	char path[PATH_MAX + 64], configuration[128];
	struct place place;

	enter(&place);
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK_STRING(path, place.cache);
	snprintf(configuration, sizeof(configuration), "%s/.perfconfig", place.home);
	write_text(
		configuration,
		"# dir = /no\n[other]\ndir = /wrong\n[buildid]\n\tdir = \"/some/where\" # here\n");
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK_STRING(path, "/some/where");
	write_text(configuration, "[buildid]\ndir = ~/cache\n");
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK(strstr(path, place.home) && strstr(path, "/cache"));
	setenv("PERF_CONFIG", "/nonexistent", 1);
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK_STRING(path, place.cache);
	unsetenv("HOME");
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), -ENOENT);
	CHECK(strstr(error_message(), "HOME"));
	leave(&place);
}

#define OTHER 65534

/* Whoever decides where the cache is decides where root writes. */
TEST(build_id_cache, of_another_user_is_not_used)
{
	char path[PATH_MAX], configuration[128], elsewhere[128];
	struct place place;

	if (geteuid())
		SKIP("only root can create the files of another user");
	enter(&place);
	snprintf(configuration, sizeof(configuration), "%s/.perfconfig", place.home);
	write_text(configuration, "[buildid]\ndir = /some/where\n");
	CHECK(!build_id_cache_directory(path, sizeof(path)) && !strcmp(path, "/some/where"));
	CHECK_EQUAL(chown(configuration, OTHER, OTHER), 0);
	CHECK(!build_id_cache_directory(path, sizeof(path)) && !strcmp(path, place.cache));

	CHECK(!mkdir(place.cache, 0755) && !chown(place.cache, OTHER, OTHER));
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), -EPERM);
	CHECK(strstr(error_message(), "/.debug belongs to user 65534"));
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", place.home);
	CHECK(!rmdir(place.cache) && !mkdir(elsewhere, 0755) && !symlink(elsewhere, place.cache));
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK_EQUAL(lchown(place.cache, OTHER, OTHER), 0);
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), -EPERM);
	CHECK_EQUAL(unlink(place.cache), 0);

	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), 0);
	CHECK_EQUAL(chown(place.home, OTHER, OTHER), 0);
	CHECK_EQUAL(build_id_cache_directory(path, sizeof(path)), -EPERM);
	leave(&place);
}

static char *text_of(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *file = fopen(path, "r");

	if (file) {
		text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
		fclose(file);
	}
	return text;
}

static void add(const struct place *place, const struct fake_guest *guest,
		struct build_id_cache_boot *boot)
{
	CHECK_EQUAL(build_id_cache_add_kernel(place->cache, &guest->image), 0);
	CHECK_EQUAL(build_id_cache_add_boot(place->cache, &guest->image, boot), 0);
	CHECK_EQUAL(build_id_cache_add_code(place->cache, &guest->image, &guest->view,
					    &guest->paging, boot),
		    0);
}

TEST(build_id_cache, has_the_kernel_under_its_build_id)
{
	char path[PATH_MAX + 64], target[PATH_MAX] = "", *text;
	struct build_id_cache_boot boot = { 0 };
	struct fake_guest guest;
	struct place place;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	add(&place, &guest, &boot);
	snprintf(path, sizeof(path), "%s/[kernel.kallsyms]/" ID "/kallsyms", place.cache);
	text = text_of(path);
	CHECK(strstr(text, "ffffffff9a000000 T _text\n"));
	CHECK(strstr(text, "ffffffff9a000300 t guest_function_3\n"));
	CHECK(!strstr(text, "module_function"));
	free(text);
	snprintf(path, sizeof(path),
		 "%s/.build-id/11/"
		 "11111111111111111111111111111111111111",
		 place.cache);
	CHECK(readlink(path, target, sizeof(target) - 1) > 0);
	CHECK_STRING(target, "../../[kernel.kallsyms]/" ID);
	snprintf(path, sizeof(path), "%s/kallsyms", boot.path);
	text = text_of(path);
	CHECK(strstr(text, "ffffffffc0123200 t module_function_2\t[fake_module]\n"));
	free(text);
	snprintf(path, sizeof(path), "%s/modules", boot.path);
	text = text_of(path);
	CHECK_STRING(text, "fake_module 4096 0 - Live 0xffffffffc0123000\n");
	free(text);
	fake_guest_free(&guest);
	leave(&place);
}

static void check_code(Elf *elf, int fd, uint64_t address)
{
	size_t count = 0;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++) {
		uint8_t code[4] = { 0 };
		GElf_Phdr part;

		if (!gelf_getphdr(elf, (int)i, &part) || part.p_type != PT_LOAD ||
		    address - part.p_vaddr >= part.p_filesz)
			continue;
		CHECK(part.p_flags & PF_X);
		CHECK_EQUAL(pread(fd, code, sizeof(code),
				  (off_t)(part.p_offset + (address - part.p_vaddr))),
			    4);
		CHECK(!memcmp(code, "\x55\x48\x89\xe5", 4));
		return;
	}
	FAIL_TEST("no part of the file holds %#llx", (unsigned long long)address);
}

TEST(build_id_cache, has_the_code_at_its_addresses)
{
	struct build_id_cache_boot boot = { 0 };
	struct fake_guest guest;
	struct place place;
	char path[PATH_MAX + 64];
	int fd;
	Elf *elf;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0x200000, FAKE_MODULE);
	add(&place, &guest, &boot);
	snprintf(path, sizeof(path), "%s/kcore", boot.path);
	fd = open(path, O_RDONLY);
	REQUIRE(fd >= 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	REQUIRE(elf);
	check_code(elf, fd, FAKE_TEXT + 0x200000);
	check_code(elf, fd, FAKE_TEXT + 0x200000 + 5 * FAKE_FUNCTION_SIZE);
	check_code(elf, fd, FAKE_MODULE + 2 * FAKE_FUNCTION_SIZE);
	elf_end(elf);
	close(fd);
	fake_guest_free(&guest);
	leave(&place);
}

static unsigned int count_boots(const struct place *place, const char *file)
{
	char path[PATH_MAX + 64];
	unsigned int count = 0;
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "%s/[kernel.kcore]/" ID, place->cache);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		char name[2 * PATH_MAX];

		snprintf(name, sizeof(name), "%s/%s/%s", path, entry->d_name, file);
		count += *entry->d_name != '.' && !access(name, F_OK);
	}
	if (directory)
		closedir(directory);
	return count;
}

TEST(build_id_cache, stores_equal_boots_once)
{
	struct build_id_cache_boot boots[3] = { 0 };
	struct fake_guest guest, other;
	struct place place;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	fake_guest_make(&other, 0x11, 0x400000, FAKE_MODULE);
	add(&place, &guest, &boots[0]);
	add(&place, &guest, &boots[1]);
	CHECK_STRING(boots[1].path, boots[0].path);
	add(&place, &other, &boots[2]);
	CHECK(strcmp(boots[2].path, boots[0].path));
	CHECK_EQUAL(count_boots(&place, "kcore"), 2);
	fake_guest_free(&guest);
	fake_guest_free(&other);
	leave(&place);
}

TEST(build_id_cache, follows_the_modules_of_a_boot)
{
	struct build_id_cache_boot boot = { 0 };
	char path[PATH_MAX + 64], first[PATH_MAX], *text;
	struct fake_guest guest;
	struct place place;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	guest.image.module_count = 0;
	CHECK_EQUAL(build_id_cache_add_boot(place.cache, &guest.image, &boot), 0);
	strcpy(first, boot.path);
	guest.image.module_count = 1;
	CHECK_EQUAL(build_id_cache_add_boot(place.cache, &guest.image, &boot), 0);
	CHECK_STRING(boot.path, first);
	snprintf(path, sizeof(path), "%s/modules", boot.path);
	text = text_of(path);
	CHECK(strstr(text, "fake_module"));
	free(text);
	CHECK_EQUAL(count_boots(&place, "modules"), 1);
	fake_guest_free(&guest);
	leave(&place);
}

TEST(build_id_cache, keeps_existing_files)
{
	char path[PATH_MAX + 64], *text;
	struct fake_guest guest;
	struct place place;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	CHECK_EQUAL(build_id_cache_add_kernel(place.cache, &guest.image), 0);
	snprintf(path, sizeof(path), "%s/[kernel.kallsyms]/" ID "/kallsyms", place.cache);
	write_text(path, "from elsewhere\n");
	CHECK_EQUAL(build_id_cache_add_kernel(place.cache, &guest.image), 0);
	text = text_of(path);
	CHECK_STRING(text, "from elsewhere\n");
	free(text);
	fake_guest_free(&guest);
	leave(&place);
}

TEST(build_id_cache, keeps_the_code_of_the_newest_boots_only)
{
	struct place place;

	enter(&place);
	for (unsigned int i = 0; i < BUILD_ID_CACHE_CODE_KEPT + 3; i++) {
		struct build_id_cache_boot boot = { 0 };
		struct fake_guest guest;

		fake_guest_make(&guest, 0x11, i * 0x200000ull, FAKE_MODULE);
		add(&place, &guest, &boot);
		fake_guest_free(&guest);
	}
	CHECK_EQUAL(count_boots(&place, "kcore"), BUILD_ID_CACHE_CODE_KEPT);
	CHECK_EQUAL(count_boots(&place, "kallsyms"), BUILD_ID_CACHE_CODE_KEPT + 3);
	CHECK_EQUAL(count_boots(&place, "modules"), BUILD_ID_CACHE_CODE_KEPT + 3);
	leave(&place);
}

TEST(build_id_cache, removes_the_oldest_boots_of_its_own)
{
	char other[PATH_MAX + 64], command[3 * PATH_MAX];
	struct place place;

	enter(&place);
	snprintf(other, sizeof(other), "%s/[kernel.kcore]/" ID "/2001010100000000", place.cache);
	snprintf(command, sizeof(command), "mkdir -p '%s' && echo theirs > '%s/kcore'", other,
		 other);
	CHECK_EQUAL(system(command), 0);
	for (unsigned int i = 0; i < BUILD_ID_CACHE_BOOTS_KEPT + 3; i++) {
		struct build_id_cache_boot boot = { 0 };
		struct fake_guest guest;

		fake_guest_make(&guest, 0x11, i * 0x200000ull, FAKE_MODULE);
		add(&place, &guest, &boot);
		fake_guest_free(&guest);
	}
	CHECK_EQUAL(count_boots(&place, "kallsyms"), BUILD_ID_CACHE_BOOTS_KEPT);
	CHECK_EQUAL(count_boots(&place, "kcore"), BUILD_ID_CACHE_CODE_KEPT + 1);
	leave(&place);
}

TEST(build_id_cache, concurrent_writers_leave_whole_files)
{
	struct place place;
	char path[PATH_MAX + 64], *text;
	int status, failures = 0;
	pid_t children[6];

	enter(&place);
	for (unsigned int child = 0; child < 6; child++) {
		children[child] = fork();
		if (children[child])
			continue;
		for (unsigned int i = 0; i < 5; i++) {
			struct build_id_cache_boot boot = { 0 };
			struct fake_guest guest;

			fake_guest_make(&guest, 0x11, child % 3 * 0x200000ull, FAKE_MODULE);
			if (build_id_cache_add_kernel(place.cache, &guest.image) ||
			    build_id_cache_add_boot(place.cache, &guest.image, &boot) ||
			    build_id_cache_add_code(place.cache, &guest.image, &guest.view,
						    &guest.paging, &boot))
				_exit(1);
			fake_guest_free(&guest);
		}
		_exit(0);
	}
	for (unsigned int child = 0; child < 6; child++)
		failures += waitpid(children[child], &status, 0) != children[child] || status;
	CHECK_EQUAL(failures, 0);
	snprintf(path, sizeof(path), "%s/[kernel.kallsyms]/" ID "/kallsyms", place.cache);
	text = text_of(path);
	CHECK(strstr(text, "guest_function_7\n"));
	free(text);
	CHECK_EQUAL(count_boots(&place, "kcore"), count_boots(&place, "modules"));
	leave(&place);
}

TEST(build_id_cache, rejects_guest_names_with_lines_or_paths)
{
	struct build_id_cache_boot boot = { 0 };
	char path[PATH_MAX + 64], *text;
	struct fake_guest guest;
	struct place place;

	enter(&place);
	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	strcpy(guest.module.name, "../../evil\nmodule");
	CHECK_EQUAL(build_id_cache_add_boot(place.cache, &guest.image, &boot), 0);
	snprintf(path, sizeof(path), "%s/modules", boot.path);
	text = text_of(path);
	CHECK_STRING(text, "");
	free(text);
	CHECK(!build_id_cache_name_is_plain(""));
	CHECK(!build_id_cache_name_is_plain("a b"));
	CHECK(!build_id_cache_name_is_plain("a\nb"));
	CHECK(!build_id_cache_name_is_plain("a/b"));
	CHECK(!build_id_cache_name_is_plain("a]"));
	CHECK(!build_id_cache_name_is_plain("\xc3\xa4"));
	CHECK(build_id_cache_name_is_plain("virtio_blk"));
	CHECK(build_id_cache_name_is_plain("__pfx_foo.constprop.0"));
	fake_guest_free(&guest);
	leave(&place);
}

TEST(build_id_cache, reports_why_it_cannot_be_written)
{
	struct build_id_cache_boot boot = { 0 };
	struct fake_guest guest;

	fake_guest_make(&guest, 0x11, 0, FAKE_MODULE);
	CHECK(build_id_cache_add_kernel("/proc/nowhere", &guest.image) < 0);
	CHECK(strstr(error_message(), "/proc/nowhere"));
	CHECK(build_id_cache_add_boot("/proc/nowhere", &guest.image, &boot) < 0);
	fake_guest_free(&guest);
}

static const uint8_t image_id[20] = { [0 ... 19] = 0x22 };

#define IMAGE_ID "2222222222222222222222222222222222222222"

static int put_image(const char *cache, int (*put)(const char *, struct span, const struct bytes *),
		     const char *content)
{
	struct bytes file = { 0 };
	int result;

	bytes_add(&file, content, strlen(content));
	result = put(cache, span_of(image_id, sizeof(image_id)), &file);
	free(file.data);
	return result;
}

/* The content of FILE. */
static int put_file(const char *cache, int (*put)(const char *, struct span, const struct bytes *),
		    const char *from)
{
	struct bytes file = { 0 };
	char part[4096];
	size_t size;
	FILE *stream = fopen(from, "re");
	int result;

	while (stream && (size = fread(part, 1, sizeof(part), stream)))
		bytes_add(&file, part, size);
	if (stream)
		fclose(stream);
	result = file.size ? put(cache, span_of(image_id, sizeof(image_id)), &file) : -1;
	free(file.data);
	return result;
}

TEST(build_id_cache, keeps_an_image_that_has_more_symbols)
{
	struct place place;

	enter(&place);
	CHECK_EQUAL(put_file(place.cache, build_id_cache_add_image, "build/inlines/gcc"), 1);
	CHECK_EQUAL(put_file(place.cache, build_id_cache_replace_image, "build/inlines/stripped"),
		    0);
	CHECK_EQUAL(put_file(place.cache, build_id_cache_replace_image, "build/inlines/gcc"), 1);
	leave(&place);
}

static void check_image(const struct place *place, const char *expected)
{
	char path[256], content[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/.build-id/22/%s/elf", place->cache, &IMAGE_ID[2]);
	file = fopen(path, "re");
	REQUIRE(file);
	CHECK(fgets(content, sizeof(content), file));
	CHECK_STRING(content, expected);
	fclose(file);
}

/* Symbols from guest memory are replaced by the file; files of perf never are. */
TEST(build_id_cache, replaces_its_own_images)
{
	struct place place;
	char command[512];

	enter(&place);
	CHECK_EQUAL(put_image(place.cache, build_id_cache_add_image, "names"), 1);
	CHECK_EQUAL(put_image(place.cache, build_id_cache_add_image, "others"), 0);
	check_image(&place, "names");
	CHECK_EQUAL(put_image(place.cache, build_id_cache_replace_image, "file"), 1);
	check_image(&place, "file");
	snprintf(command, sizeof(command),
		 "cd %s && mkdir -p usr/bin/x/" IMAGE_ID " && printf perf > usr/bin/x/" IMAGE_ID
		 "/elf && ln -sfn ../../usr/bin/x/" IMAGE_ID " .build-id/22/%s",
		 place.cache, &IMAGE_ID[2]);
	CHECK_EQUAL(system(command), 0);
	CHECK_EQUAL(put_image(place.cache, build_id_cache_replace_image, "other"), 0);
	check_image(&place, "perf");
	leave(&place);
}
