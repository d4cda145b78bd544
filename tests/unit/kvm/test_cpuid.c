/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "vmm/kvm/cpuid.h"

static void add(struct cpuid_table *table, uint32_t function, uint32_t index, uint32_t value)
{
	table->entries[table->header.nent++] = (struct kvm_cpuid_entry2){ .function = function,
									  .index = index,
									  .eax = value,
									  .ebx = value,
									  .ecx = value,
									  .edx = value };
}

/* A host that sets all bits in its leaves. */
static struct cpuid_table *host_table(void)
{
	static const uint32_t leaves[] = { 1,          4,          6,          7,
					   0xa,        0xb,        0x14,       0x1f,
					   0x80000001, 0x80000008, 0x8000001e, 0x80000022 };
	struct cpuid_table *table = calloc(1, sizeof(*table));

	add(table, 0, 0, 0x1f);
	for (size_t i = 0; i < sizeof(leaves) / sizeof(*leaves); i++)
		add(table, leaves[i], 0, UINT32_MAX);
	return table;
}

TEST(cpuid, each_vcpu_has_its_own_apic_id)
{
	for (unsigned int id = 0; id < 64; id += 21) {
		struct cpuid_table *table = host_table();

		cpuid_filter(table, &(struct cpuid_options){
					    .cpus = 64, .apic_id = id, .tsc_deadline = true });
		CHECK_EQUAL(cpuid_find(table, 1, 0)->ebx >> 24, id);
		CHECK_EQUAL(cpuid_find(table, 1, 0)->ebx >> 16 & 0xff, 64);
		CHECK_EQUAL(cpuid_find(table, 0xb, 0)->edx, id);
		CHECK_EQUAL(cpuid_find(table, 0xb, 1)->edx, id);
		CHECK_EQUAL(cpuid_find(table, 0xb, 1)->ebx, 64);
		CHECK_EQUAL(cpuid_find(table, 0xb, 1)->eax, 6);
		CHECK_EQUAL(cpuid_find(table, 0x8000001e, 0)->eax, id);
		CHECK_EQUAL(cpuid_find(table, 0x80000008, 0)->ecx & 0xf0ff, 0x603f);
		free(table);
	}
}

TEST(cpuid, no_pmu_and_no_nesting)
{
	struct cpuid_table *table = host_table();

	cpuid_filter(table, &(struct cpuid_options){ .cpus = 1 });
	CHECK(!cpuid_find(table, 0xa, 0));
	CHECK(!cpuid_find(table, 0x14, 0));
	CHECK(!cpuid_find(table, 0x1f, 0));
	CHECK(!cpuid_find(table, 0x80000022, 0));
	CHECK(!(cpuid_find(table, 1, 0)->ecx & 1 << 5));
	CHECK(!(cpuid_find(table, 1, 0)->ecx & 1 << 15));
	CHECK(!(cpuid_find(table, 0x80000001, 0)->ecx & 1 << 2));
	CHECK(!(cpuid_find(table, 0x80000001, 0)->ecx & 1 << 23));
	free(table);
}

TEST(cpuid, nested_virtualization_on_request)
{
	struct cpuid_table *table = host_table();

	CHECK(cpuid_can_nest(table));
	cpuid_filter(table, &(struct cpuid_options){ .cpus = 1, .nested = true });
	CHECK(cpuid_find(table, 1, 0)->ecx & 1 << 5);
	CHECK(cpuid_find(table, 0x80000001, 0)->ecx & 1 << 2);
	CHECK(cpuid_can_nest(table));
	cpuid_filter(table, &(struct cpuid_options){ .cpus = 1 });
	CHECK(!cpuid_can_nest(table));
	free(table);
}

TEST(cpuid, hypervisor_and_x2apic_are_shown)
{
	struct cpuid_table *table = calloc(1, sizeof(*table));

	add(table, 0, 0, 4); /* an old CPU without leaf 0xB */
	add(table, 1, 0, 0);
	cpuid_filter(table, &(struct cpuid_options){ .cpus = 1, .tsc_deadline = true });
	CHECK_EQUAL(cpuid_find(table, 1, 0)->ecx, 1u << 31 | 1 << 24 | 1 << 21);
	CHECK_EQUAL(cpuid_find(table, 1, 0)->edx, 0);
	CHECK(!cpuid_find(table, 0xb, 0));
	free(table);
}
