/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's topology is one package of single-threaded cores with the APIC ids 0, 1, 2, ...
 * Bits are those of SDM vol. 2A, CPUID, and, for the 0x8000_0000 leaves, APM vol. 3 app. E. */
#include "vmm/kvm/cpuid.h"

#include <asm/kvm_para.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"

#define BIT(n) (1u << (n))

#define FEATURE_VMX BIT(5) /* leaf 1, ECX */
#define FEATURE_SVM BIT(2) /* leaf 0x80000001, ECX */

int cpuid_supported(int kvm_fd, struct cpuid_table *table)
{
	memset(table, 0, sizeof(*table));
	table->header.nent = CPUID_ENTRIES_MAX;
	return ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, &table->header)
		       ? error_set(-errno, "cannot read KVM's supported CPUID: %m")
		       : 0;
}

struct kvm_cpuid_entry2 *cpuid_find(struct cpuid_table *table, uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < table->header.nent; i++)
		if (table->entries[i].function == function && table->entries[i].index == index)
			return &table->entries[i];
	return NULL;
}

struct kvm_cpuid_entry2 *cpuid_add(struct cpuid_table *table, uint32_t function, uint32_t index)
{
	struct kvm_cpuid_entry2 *entry = cpuid_find(table, function, index);

	if (entry || table->header.nent == CPUID_ENTRIES_MAX)
		return entry;
	entry = &table->entries[table->header.nent++];
	*entry = (struct kvm_cpuid_entry2){ .function = function, .index = index };
	return entry;
}

bool cpuid_vendor_is(struct cpuid_table *table, const char *name)
{
	const struct kvm_cpuid_entry2 *leaf = cpuid_find(table, 0, 0);

	return leaf && !memcmp(&leaf->ebx, name, 4) && !memcmp(&leaf->edx, name + 4, 4) &&
	       !memcmp(&leaf->ecx, name + 8, 4);
}

bool cpuid_can_nest(struct cpuid_table *table)
{
	const struct kvm_cpuid_entry2 *intel = cpuid_find(table, 1, 0);
	const struct kvm_cpuid_entry2 *amd = cpuid_find(table, 0x80000001, 0);

	return (intel && intel->ecx & FEATURE_VMX) || (amd && amd->ecx & FEATURE_SVM);
}

static void remove_leaf(struct cpuid_table *table, uint32_t function)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < table->header.nent; i++)
		if (table->entries[i].function != function)
			table->entries[kept++] = table->entries[i];
	table->header.nent = kept;
}

/* Number of APIC id bits that number the cores: the smallest n with 2^n >= cpus. */
static unsigned int core_id_bits(unsigned int cpus)
{
	unsigned int bits = 0;

	while ((1u << bits) < cpus)
		bits++;
	return bits;
}

static void filter_features(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	unsigned int package_ids = 1u << core_id_bits(options->cpus);

	/* EBX: the APIC id of this vCPU and the number of ids in its package, instead of the
	 * host's. */
	leaf->ebx &= 0x0000ffff;
	leaf->ebx |= options->apic_id << 24 | package_ids << 16;
	/* HTT: the count in EBX is valid. */
	leaf->edx &= ~BIT(28);
	if (options->cpus > 1)
		leaf->edx |= BIT(28);
	/* Hypervisor bit: without it Linux does not search for kvm-clock. */
	leaf->ecx |= BIT(31);
	/* KVM's LAPIC has x2APIC and the deadline timer; older kernels do not list them. */
	leaf->ecx |= BIT(21);
	if (options->tsc_deadline)
		leaf->ecx |= BIT(24);
	/* MONITOR/MWAIT would be NOPs: an idle guest would spin, and be sampled while it does. */
	leaf->ecx &= ~BIT(3);
	if (!options->nested)
		leaf->ecx &= ~FEATURE_VMX;
	/* No debug store (PEBS, BTS); without a PMU no PERF_CAPABILITIES. */
	leaf->ecx &= ~(BIT(2) | BIT(4));
	leaf->edx &= ~BIT(21);
	if (!options->kernel_pmu)
		leaf->ecx &= ~BIT(15);
}

/* Intel's cache leaf: the number of cores and the sharing of each cache, instead of the host's. */
static void filter_caches(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	unsigned int ids = 1u << core_id_bits(options->cpus);
	unsigned int type = leaf->eax & 0x1f;
	unsigned int level = leaf->eax >> 5 & 7;

	if (!type)
		return;
	leaf->eax &= 0x00003fff;
	leaf->eax |= (ids - 1) << 26;
	if (level >= 3)
		leaf->eax |= (ids - 1) << 14;
}

/* AMD's cache leaf: the last level is shared by all cores, the others are private. */
static void filter_amd_caches(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	if (!(leaf->eax & 0x1f))
		return;
	leaf->eax &= 0x00003fff;
	if ((leaf->eax >> 5 & 7) >= 3)
		leaf->eax |= (options->cpus - 1) << 14;
}

/* Linux reads APIC ids and package from leaf 0xB if it exists: an SMT and a core level. */
static void build_topology(struct cpuid_table *table, const struct cpuid_options *options)
{
	const struct kvm_cpuid_entry2 *maximum = cpuid_find(table, 0, 0);

	remove_leaf(table, 0xb);
	if (!maximum || maximum->eax < 0xb)
		return;
	for (uint32_t level = 0; level < 3; level++) {
		struct kvm_cpuid_entry2 entry = { .function = 0xb,
						  .index = level,
						  .ecx = level,
						  .edx = options->apic_id,
						  .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX };

		if (level == 0) { /* threads of a core: one */
			entry.ebx = 1;
			entry.ecx |= 1 << 8;
		} else if (level == 1) { /* cores of the package */
			entry.eax = core_id_bits(options->cpus);
			entry.ebx = options->cpus;
			entry.ecx |= 2 << 8;
		}
		if (table->header.nent < CPUID_ENTRIES_MAX)
			table->entries[table->header.nent++] = entry;
	}
}

static void filter_kvm_features(struct kvm_cpuid_entry2 *leaf)
{
	/* These three need services that this VMM does not offer: MSI routing, page encryption,
	 * migration. */
	leaf->eax &= ~(BIT(KVM_FEATURE_MSI_EXT_DEST_ID) | BIT(KVM_FEATURE_HC_MAP_GPA_RANGE) |
		       BIT(KVM_FEATURE_MIGRATION_CONTROL));
}

static void filter_amd_features(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	if (!options->nested)
		leaf->ecx &= ~FEATURE_SVM;
	/* No IBS, no northbridge and last level cache counters; without a PMU no core counters. */
	leaf->ecx &= ~(BIT(10) | BIT(24) | BIT(28));
	if (!options->kernel_pmu)
		leaf->ecx &= ~BIT(23);
}

static void filter_amd_sizes(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	/* ECX: number of cores minus one, and number of APIC id bits for them. */
	leaf->ecx &= ~0xf0ffu;
	leaf->ecx |= (options->cpus - 1) | core_id_bits(options->cpus) << 12;
}

static void filter_amd_topology(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	leaf->eax = options->apic_id;        /* extended APIC id */
	leaf->ebx = options->apic_id & 0xff; /* core id: one thread per core */
	leaf->ecx = 0;                       /* node 0 of one */
	leaf->edx = 0;
}

static void filter_leaf(struct kvm_cpuid_entry2 *leaf, const struct cpuid_options *options)
{
	switch (leaf->function) {
	case 0x1:
		filter_features(leaf, options);
		break;
	case 0x4:
		filter_caches(leaf, options);
		break;
	case 0x6: /* power management: keep ARAT (the LAPIC timer never stops); there are no
		     APERF/MPERF MSRs */
		leaf->eax &= BIT(2);
		leaf->ebx = leaf->ecx = leaf->edx = 0;
		break;
	case 0x7: /* no processor trace, no architectural LBRs: the guest gets no tracing hardware
		   */
		if (leaf->index == 0) {
			leaf->ebx &= ~BIT(25);
			leaf->edx &= ~BIT(19);
		}
		break;
	case KVM_CPUID_FEATURES:
		filter_kvm_features(leaf);
		break;
	case 0x80000001:
		filter_amd_features(leaf, options);
		break;
	case 0x80000008:
		filter_amd_sizes(leaf, options);
		break;
	case 0x8000001d:
		filter_amd_caches(leaf, options);
		break;
	case 0x8000001e:
		filter_amd_topology(leaf, options);
		break;
	}
}

void cpuid_filter(struct cpuid_table *table, const struct cpuid_options *options)
{
	static const uint32_t pmu[] = {
		0xa,        /* Intel */
		0x23,       /* Intel, extended */
		0x80000022, /* AMD, version 2 */
	};
	static const uint32_t hidden[] = {
		0x14,       /* processor trace */
		0x1c,       /* architectural LBRs */
		0x1f,       /* host topology, version 2: leaf 0xB has it all */
		0x8000001b, /* IBS */
		0x80000026, /* AMD host topology */
	};

	for (uint32_t i = 0; i < table->header.nent; i++)
		filter_leaf(&table->entries[i], options);
	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++)
		remove_leaf(table, hidden[i]);
	for (size_t i = 0; !options->kernel_pmu && i < sizeof(pmu) / sizeof(*pmu); i++)
		remove_leaf(table, pmu[i]);
	build_topology(table, options);
}
