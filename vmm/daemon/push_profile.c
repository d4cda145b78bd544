/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push_profile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/report/pprof.h"
#include "vmm/report/profile_stacks.h"

static int spool_vcpu(struct push_spool *spool, const struct push_item *item,
		      const struct profile *profile)
{
	const struct pprof_options options = { .one_vcpu = true,
					       .vcpu = item->vcpu,
					       .for_store = true,
					       .from = item->from * NS_PER_MS,
					       .until = item->until * NS_PER_MS };
	FILE *file = push_spool_begin(spool);
	int error;

	if (!file)
		return -EIO;
	error = pprof_write(profile, &options, file);
	if (!error)
		return push_spool_commit(spool, file, item);
	push_spool_abandon(spool, file);
	return error == -ENOMEM ? error : -EIO;
}

static bool has_vcpu(const uint32_t *vcpus, size_t count, uint32_t vcpu)
{
	for (size_t i = 0; i < count; i++)
		if (vcpus[i] == vcpu)
			return true;
	return false;
}

/* The vCPUs with samples, COUNT of them; the caller's to free. */
static uint32_t *list_vcpus(const struct profile *profile, size_t *count)
{
	size_t stacks = profile_stack_count(profile);
	uint32_t *vcpus = calloc(stacks + 1, sizeof(*vcpus));

	*count = 0;
	for (size_t i = 0; vcpus && i < stacks; i++) {
		uint32_t vcpu = profile_stack(profile, i)->vcpu;

		if (!has_vcpu(vcpus, *count, vcpu))
			vcpus[(*count)++] = vcpu;
	}
	if (!vcpus)
		error_set(-ENOMEM, "no memory for a profile");
	return vcpus;
}

static int spool_all(struct push_spool *spool, struct push_item *item,
		     const struct profile *profile)
{
	size_t count;
	uint32_t *vcpus = list_vcpus(profile, &count);
	int error = vcpus ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !error; i++) {
		item->vcpu = vcpus[i];
		error = spool_vcpu(spool, item, profile);
	}
	free(vcpus);
	return error;
}

/* Errors of this process or machine, which may pass. */
static bool may_pass(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE || error == -ENOENT;
}

int push_profile_spool(struct push_spool *spool, const struct recordings_file *file)
{
	const struct profile_options options = { .input = file->path,
						 .sources.buildid_dir = file->names,
						 .vcpu = -1 };
	struct push_item item = { .from = file->from, .until = file->until };
	struct profile *profile;
	int error = profile_load(&profile, &options);

	if (error == -EIO || error == -EACCES)
		return -ESTALE;
	if (error)
		return may_pass(error) ? error : -EINVAL;
	domain_name_escape(file->domain, item.domain);
	item.rate = profile_summary(profile)->frequency;
	error = spool_all(spool, &item, profile);
	profile_free(profile);
	return error;
}
