/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push_profile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/disk/sandbox_work.h"
#include "vmm/report/pprof.h"
#include "vmm/report/profile_stacks.h"

/* CPU time to symbolize one recording, as one thread serves all domains. Those of ordinary guests
 * take a fraction of a second. */
#define LOAD_SECONDS 10
#define SECONDS      (LOAD_SECONDS + 5) /* with writing the profiles */
#define SIZE_MAX_ALL (256u << 20)       /* of all profiles, bytes */
#define MEMORY_MAX   (1ull << 30)
#define PROFILES_MAX 4096u /* one per vCPU */

/* Precedes each profile. */
struct header {
	uint32_t vcpu, rate; /* as in struct push_item */
	uint64_t size;       /* bytes */
};

struct conversion {
	const struct recordings_file *file;
	enum push_format format;
	const atomic_bool *stop;
	FILE *to;
};

/* --- the child ------------------------------------------------------------------------- */

static int write_vcpu(const struct conversion *conversion, const struct profile *profile,
		      uint32_t vcpu)
{
	const struct pprof_options options = { .one_vcpu = true,
					       .vcpu = vcpu,
					       .for_store = conversion->format == PUSH_PYROSCOPE,
					       .from = conversion->file->from * NS_PER_MS,
					       .until = conversion->file->until * NS_PER_MS };
	struct header header = { .vcpu = vcpu, .rate = profile_summary(profile)->frequency };
	char *bytes = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&bytes, &size);
	int error = memory ? pprof_write(profile, &options, memory)
			   : error_set(-ENOMEM, "no memory for a profile");

	if (memory && fclose(memory) && !error)
		error = error_set(-ENOMEM, "no memory for a profile");
	header.size = size;
	if (!error && (fwrite(&header, sizeof(header), 1, conversion->to) != 1 ||
		       fwrite(bytes, 1, size, conversion->to) != size))
		error = error_set(-EFBIG, "the profiles of %s are too large",
				  conversion->file->path);
	free(bytes);
	return error;
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

static int write_all(const struct conversion *conversion, const struct profile *profile)
{
	size_t count;
	uint32_t *vcpus = list_vcpus(profile, &count);
	int error = vcpus ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !error; i++)
		error = write_vcpu(conversion, profile, vcpus[i]);
	free(vcpus);
	if (!error && fflush(conversion->to))
		error = error_set(-EFBIG, "the profiles of %s are too large",
				  conversion->file->path);
	return error;
}

static int convert(void *context)
{
	const struct conversion *conversion = context;
	const struct recordings_file *file = conversion->file;
	const struct profile_options options = { .input = file->path,
						 .sources = { .buildid_dir = file->symbols,
							      .cache_only = true },
						 .vcpu = -1,
						 .cpu_limit = LOAD_SECONDS * NS_PER_S };
	struct profile *profile;
	int error = profile_load(&profile, &options);

	if (error)
		return error;
	error = write_all(conversion, profile);
	profile_free(profile);
	return error;
}

/* --- the daemon ------------------------------------------------------------------------ */

static bool is_stopped(void *context)
{
	const struct conversion *conversion = context;

	return conversion->stop && atomic_load(conversion->stop);
}

static int convert_confined(struct conversion *conversion)
{
	const struct recordings_file *file = conversion->file;
	const char *const readable[] = { file->path, file->symbols, NULL };
	const int files[] = { fileno(conversion->to) };
	const struct sandbox_work work = { .input = file->path,
					   .readable = readable,
					   .uid = geteuid(),
					   .gid = getegid(),
					   .seconds = SECONDS,
					   .file_max = SIZE_MAX_ALL,
					   .memory_max = MEMORY_MAX,
					   .files = files,
					   .file_count = 1,
					   .is_over = is_stopped,
					   .context = conversion };

	return sandbox_work_run(&work, convert, conversion);
}

static int copy_profile(FILE *from, uint64_t size, FILE *to)
{
	char bytes[65536];

	while (size) {
		size_t part = size < sizeof(bytes) ? size : sizeof(bytes);

		if (fread(bytes, 1, part, from) != part)
			return error_set(-EINVAL, "the profile ends too early");
		if (fwrite(bytes, 1, part, to) != part)
			return error_set(-EIO, "cannot write a profile: %m");
		size -= part;
	}
	return 0;
}

static int spool_one(struct push_spool *spool, FILE *from, const struct header *header,
		     const struct push_item *item)
{
	FILE *file = push_spool_begin(spool);
	int error;

	if (!file)
		return -EIO;
	error = copy_profile(from, header->size, file);
	if (!error)
		return push_spool_commit(spool, file, item);
	push_spool_abandon(spool, file);
	return error;
}

int push_profile_store(struct push_spool *spool, FILE *from, const struct recordings_file *file,
		       const atomic_bool *stop)
{
	struct push_item item = { .from = file->from, .until = file->until };
	struct header header;
	int error = 0;

	domain_name_escape(file->domain, item.domain);
	rewind(from);
	for (unsigned int i = 0; !error && fread(&header, sizeof(header), 1, from) == 1; i++) {
		item.vcpu = header.vcpu;
		item.rate = header.rate;
		if (i == PROFILES_MAX)
			error = error_set(-EINVAL, "%s has too many vCPUs", file->path);
		else if (stop && atomic_load(stop))
			error = error_set(-ECANCELED, "pushing ends");
		else
			error = spool_one(spool, from, &header, &item);
	}
	return error;
}

/* Errors of this process or machine, which may pass. */
static bool may_pass(int error)
{
	return error == -ENOMEM || error == -EAGAIN || error == -EMFILE || error == -ENFILE ||
	       error == -ENOENT || error == -ECANCELED;
}

static int open_memory(FILE **file)
{
	int fd = memfd_create("profiles", MFD_CLOEXEC), error;

	*file = fd < 0 ? NULL : fdopen(fd, "w+");
	if (*file)
		return 0;
	error = error_set(-errno, "no memory for profiles: %m");
	if (fd >= 0)
		close(fd);
	return error;
}

int push_profile_spool(struct push_spool *spool, const struct recordings_file *file,
		       enum push_format format, const atomic_bool *stop)
{
	struct conversion conversion = { .file = file, .format = format, .stop = stop };
	int error = open_memory(&conversion.to);

	if (error)
		return error;
	error = convert_confined(&conversion);
	if (error == -EIO || error == -EACCES)
		error = -ESTALE;
	else if (error && !may_pass(error))
		error = -EINVAL;
	if (!error)
		error = push_profile_store(spool, conversion.to, file, stop);
	fclose(conversion.to);
	return error;
}
