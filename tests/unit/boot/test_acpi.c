/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/span.h"
#include "tests/unit/shim/test.h"
#include "vmm/boot/acpi.h"
#include "vmm/boot/aml.h"

#define RAM         (16u << 20)
#define HEADER_SIZE 36

static const struct acpi_virtio_device devices[] = {
	{ 0xd0000000, 0x200, 5 },
	{ 0xd0000200, 0x200, 6 },
	{ 0xd0000400, 0x200, 23 },
};

struct machine {
	struct memory memory;
	uint64_t rsdp;
};

static void build(struct machine *machine, unsigned int cpus)
{
	const struct acpi_options options = { .cpus = cpus, .virtio = devices, .virtio_count = 3 };

	if (memory_create(&machine->memory, RAM) ||
	    acpi_build(&options, &machine->memory, &machine->rsdp))
		FAIL_TEST("no tables: %s", error_message());
}

static uint8_t sum(struct span bytes)
{
	uint8_t total = 0;

	for (size_t i = 0; i < bytes.size; i++)
		total = (uint8_t)(total + bytes.data[i]);
	return total;
}

/* The table at GPA, its length and checksum checked. */
static struct span table_at(const struct machine *machine, uint64_t gpa)
{
	struct span rest =
		span_of(memory_pointer(&machine->memory, gpa, ACPI_END - gpa), ACPI_END - gpa);
	struct span table = { 0 };
	uint32_t length = 0;

	CHECK(gpa >= ACPI_START && gpa < ACPI_END && rest.data);
	CHECK(span_u32(rest, 4, &length) && length >= HEADER_SIZE &&
	      span_part(rest, 0, length, &table));
	CHECK_EQUAL(sum(table), 0);
	return table;
}

static struct span xsdt(const struct machine *machine)
{
	struct span rsdp = span_of(memory_pointer(&machine->memory, machine->rsdp, 36), 36);
	uint64_t gpa = 0;

	CHECK(!memcmp(rsdp.data, "RSD PTR ", 8));
	CHECK_EQUAL(rsdp.data[15], 2);
	CHECK_EQUAL(sum(span_of(rsdp.data, 20)), 0);
	CHECK_EQUAL(sum(rsdp), 0);
	CHECK(span_u64(rsdp, 24, &gpa));
	return table_at(machine, gpa);
}

/* The table with SIGNATURE in the XSDT, or an empty span. */
static struct span find_table(const struct machine *machine, const char *signature)
{
	struct span tables = xsdt(machine);
	uint64_t gpa = 0;

	for (uint64_t at = HEADER_SIZE; span_u64(tables, at, &gpa); at += 8) {
		struct span table = table_at(machine, gpa);

		if (!memcmp(table.data, signature, 4))
			return table;
	}
	FAIL_TEST("no table %s", signature);
	return (struct span){ 0 };
}

static struct span dsdt(const struct machine *machine)
{
	uint64_t gpa = 0;

	CHECK(span_u64(find_table(machine, "FACP"), 140, &gpa));
	return table_at(machine, gpa);
}

TEST(acpi, tables_lie_where_kernels_search_and_add_up)
{
	struct machine machine;

	build(&machine, 4);
	CHECK_EQUAL(machine.rsdp % 16, 0);
	CHECK(machine.rsdp >= 0xe0000 && machine.rsdp < 0x100000);
	CHECK_EQUAL(find_table(&machine, "FACP").size, 276);
	CHECK(!memcmp(dsdt(&machine).data, "DSDT", 4));
	memory_destroy(&machine.memory);
}

/* Counts the MADT's entries of TYPE; the n-th LAPIC must have id n. */
static unsigned int count_entries(struct span madt, uint8_t type)
{
	unsigned int count = 0;
	uint8_t entry[2];

	for (uint64_t at = 44; at < madt.size; at += entry[1]) {
		if (!span_copy(madt, at, entry, sizeof(entry)) || entry[1] < 2 ||
		    !span_contains(madt, at, entry[1])) {
			FAIL_TEST("broken entry at %llu", (unsigned long long)at);
			return 0;
		}
		if (entry[0] != type)
			continue;
		if (type == 0)
			CHECK_EQUAL(madt.data[at + 3], count);
		count++;
	}
	return count;
}

static void check_madt(unsigned int cpus)
{
	struct machine machine;
	struct span madt;

	build(&machine, cpus);
	madt = find_table(&machine, "APIC");
	CHECK_EQUAL(madt.size, 44 + 8 * cpus + 12 + 10 + 6);
	CHECK_EQUAL(count_entries(madt, 0), cpus);
	CHECK_EQUAL(count_entries(madt, 1), 1);
	CHECK_EQUAL(count_entries(madt, 2), 1);
	memory_destroy(&machine.memory);
}

TEST(acpi, madt_has_every_cpu_and_the_ioapic)
{
	check_madt(1);
	check_madt(64);
}

TEST(acpi, too_many_devices_are_refused)
{
	static struct acpi_virtio_device many[1000];
	const struct acpi_options options = { .cpus = 64, .virtio = many, .virtio_count = 1000 };
	struct memory memory;
	uint64_t rsdp;

	CHECK_EQUAL(memory_create(&memory, RAM), 0);
	CHECK_EQUAL(acpi_build(&options, &memory, &rsdp), -ENOSPC);
	memory_destroy(&memory);
}

static void write_file(const char *path, struct span bytes)
{
	FILE *file = fopen(path, "w");

	if (!file || fwrite(bytes.data, 1, bytes.size, file) != bytes.size)
		FAIL_TEST("cannot write %s", path);
	if (file)
		fclose(file);
}

/* Disassembles TABLE in DIRECTORY with iasl; false if iasl reports an error. */
static bool disassemble(const char *directory, const char *name, struct span table)
{
	char path[128], line[512];

	snprintf(path, sizeof(path), "%s/%s.aml", directory, name);
	write_file(path, table);
	snprintf(
		line, sizeof(line),
		"cd %s && iasl -d %s.aml > %s.log 2>&1 && ! grep -qiE 'error|warning|invalid' %s.log",
		directory, name, name, name);
	return system(line) == 0;
}

static bool contains(const char *path, const char *text)
{
	char line[512];

	snprintf(line, sizeof(line), "grep -qF '%s' %s", text, path);
	return system(line) == 0;
}

static void check_devices(const char *path)
{
	static const char *const texts[] = {
		"PNP0501",       "PNP0B00",    "Device (VR00)",
		"Device (VR02)", "LNRO0005",   "_S5",
		"0xD0000400",    "0x00000017", "ResourceConsumer, Level, ActiveHigh, Exclusive",
		"QEMU0001",      "0x0505,",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!contains(path, texts[i]))
			FAIL_TEST("the disassembled DSDT has no %s", texts[i]);
}

TEST(acpi, iasl_disassembles_all_tables_and_compiles_the_dsdt_again)
{
	char directory[] = "/tmp/kvmscope-acpi-XXXXXX";
	char command[256], path[64];
	struct machine machine;

	if (system("command -v iasl > /dev/null"))
		SKIP("iasl is not installed (package acpica-tools)");
	REQUIRE(mkdtemp(directory));
	build(&machine, 64);
	CHECK(disassemble(directory, "dsdt", dsdt(&machine)));
	CHECK(disassemble(directory, "facp", find_table(&machine, "FACP")));
	CHECK(disassemble(directory, "apic", find_table(&machine, "APIC")));
	CHECK(disassemble(directory, "xsdt", xsdt(&machine)));
	snprintf(path, sizeof(path), "%s/dsdt.dsl", directory);
	check_devices(path);
	snprintf(command, sizeof(command),
		 "iasl -p %s/again %s 2>&1 | grep -q ' 0 Errors, 0 Warnings'", directory, path);
	CHECK_EQUAL(system(command), 0);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK_EQUAL(system(command), 0);
	memory_destroy(&machine.memory);
}

TEST(acpi, aml_writer_encodes_integers_and_ids)
{
	static const uint8_t wanted[] = { 0x00, 0x01, 0x0a, 0x02, 0x0b, 0x00, 0x01, 0x0c, 0x00,
					  0x00, 0x01, 0x00, 0x0e, 0,    0,    0,    0,    1,
					  0,    0,    0,    0x0c, 0x41, 0xd0, 0x05, 0x01 };
	uint8_t bytes[64];
	struct aml aml = { .data = bytes, .capacity = sizeof(bytes) };

	aml_integer(&aml, 0);
	aml_integer(&aml, 1);
	aml_integer(&aml, 2);
	aml_integer(&aml, 0x100);
	aml_integer(&aml, 0x10000);
	aml_integer(&aml, 0x100000000);
	aml_eisa_id(&aml, "PNP0501");
	CHECK(!aml.full);
	REQUIRE_EQUAL(aml.size, sizeof(wanted));
	CHECK(!memcmp(bytes, wanted, sizeof(wanted)));
}

TEST(acpi, aml_writer_stops_at_its_end)
{
	uint8_t bytes[16] = { 0 };
	struct aml aml = { .data = bytes, .capacity = 10 };

	aml_end(&aml, aml_device(&aml, "ABCD"));
	CHECK(!aml.full);
	aml_string(&aml, "xyz");
	CHECK(aml.full);
	aml_integer(&aml, 1);
	CHECK(aml.size <= 10);
	CHECK_EQUAL(bytes[10], 0);
}
