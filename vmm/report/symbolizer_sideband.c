/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/report/container_name.h"
#include "vmm/report/symbolizer_state.h"

struct build_id {
	const char *name;
	uint8_t bytes[ELF_BUILD_ID_MAX];
	size_t size;
};

/* 0, or -ENOMEM with its message. */
static int check(const struct symbolizer *symbolizer, bool done)
{
	return done ? 0 : symbolizer_out_of_memory(symbolizer);
}

static bool same_name(const void *item, const void *key)
{
	return ((const struct build_id *)item)->name == key;
}

static int on_build_id(void *context, const struct perf_data_build_id *entry)
{
	struct symbolizer *symbolizer = context;
	const char *name = pool_string(&symbolizer->pool, entry->name);
	struct build_id *build_id = pool_alloc(&symbolizer->pool, sizeof(*build_id));

	if (!name || !build_id)
		return symbolizer_out_of_memory(symbolizer);
	if (entry->build_id_size > ELF_BUILD_ID_MAX ||
	    hash_table_find(&symbolizer->build_ids, hash_pointer(name), same_name, name))
		return 0;
	build_id->name = name;
	build_id->size = entry->build_id_size;
	memcpy(build_id->bytes, entry->build_id, entry->build_id_size);
	return check(symbolizer,
		     !hash_table_add(&symbolizer->build_ids, hash_pointer(name), build_id));
}

static bool same_image(const void *item, const void *key)
{
	const struct profile_image *a = item, *b = key;

	return a->path == b->path && a->kernel == b->kernel && a->kind == b->kind &&
	       a->build_id_size == b->build_id_size &&
	       !memcmp(a->build_id, b->build_id, a->build_id_size);
}

/* The mapping's build id, else that of its name in the file's table. */
static void find_build_id(const struct symbolizer *symbolizer, struct profile_image *image,
			  const struct perf_data_mapping_event *mapping)
{
	const char *name = image->kind == IMAGE_KERNEL ? image->name : image->path;
	const struct build_id *listed =
		hash_table_find(&symbolizer->build_ids, hash_pointer(name), same_name, name);

	if (mapping->build_id_size && mapping->build_id_size <= ELF_BUILD_ID_MAX) {
		image->build_id_size = mapping->build_id_size;
		memcpy(image->build_id, mapping->build_id, mapping->build_id_size);
	} else if (listed) {
		image->build_id_size = listed->size;
		memcpy(image->build_id, listed->bytes, listed->size);
	}
}

static int keep_image(struct symbolizer *symbolizer, const struct profile_image *image,
		      struct profile_image **kept)
{
	uint64_t hash = hash_mix(hash_pointer(image->path), (uintptr_t)image->kernel);

	hash = hash_mix_bytes(hash_mix(hash, image->kind), image->build_id, image->build_id_size);
	*kept = hash_table_find(&symbolizer->images, hash, same_image, image);
	if (*kept)
		return 0;
	*kept = pool_alloc(&symbolizer->pool, sizeof(**kept));
	if (!*kept)
		return symbolizer_out_of_memory(symbolizer);
	**kept = *image;
	return check(symbolizer, !hash_table_add(&symbolizer->images, hash, *kept));
}

/* Keeps what distinguishes the boots of a kernel. */
static int note_kernel(struct symbolizer *symbolizer, const struct profile_image *image,
		       const struct perf_data_mapping_event *mapping)
{
	struct profile_kernel *kernel = image->kernel;

	if (image->kind == IMAGE_KERNEL) {
		memcpy(kernel->build_id, image->build_id, sizeof(kernel->build_id));
		kernel->build_id_size = image->build_id_size;
		kernel->reference = image->reference;
		kernel->reference_address = mapping->offset;
	} else if (image->kind == IMAGE_MODULE) {
		return profile_kernel_set_module(kernel, &symbolizer->pool, image->module,
						 mapping->start);
	}
	return 0;
}

/* A file of the VMM has a prefix, because the guest may have another one at the same path. */
static const char *name_of(const struct perf_data_mapping_event *mapping)
{
	bool host = mapping->misc == PERF_RECORD_MISC_HYPERVISOR &&
		    !strncmp(mapping->name, "[host]", strlen("[host]"));

	return host ? mapping->name + strlen("[host]") : mapping->name;
}

static int on_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct symbolizer *symbolizer = context;
	bool host = mapping->misc == PERF_RECORD_MISC_HYPERVISOR;
	bool guest = host || is_guest_mode(mapping->misc),
	     kernel = host ? mapping->start >> 63 : is_kernel_mode(mapping->misc);
	struct profile_image image = { 0 }, *kept;
	int error;

	if (mapping->is_code
		    ? !profile_image_describe_code(&image, &symbolizer->pool, mapping->name)
		    : !profile_image_describe(&image, &symbolizer->pool, name_of(mapping), kernel))
		return symbolizer_out_of_memory(symbolizer);
	find_build_id(symbolizer, &image, mapping);
	symbolizer->has_host |= host;
	symbolizer->kernels[1].host |= host;
	if (kernel)
		image.kernel = &symbolizer->kernels[guest];
	if (kernel && note_kernel(symbolizer, &image, mapping))
		return symbolizer_out_of_memory(symbolizer);
	error = keep_image(symbolizer, &image, &kept);
	if (error)
		return error;
	return check(symbolizer,
		     !profile_timeline_map(symbolizer->timeline, guest,
					   kernel ? PROFILE_KERNEL : mapping->pid, mapping->time,
					   mapping->start, mapping->size, mapping->offset, kept));
}

static int on_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct symbolizer *symbolizer = context;
	const char *name = pool_string(&symbolizer->pool, comm);

	return check(symbolizer,
		     name && !profile_timeline_comm(symbolizer->timeline, tid, time, name));
}

static int on_exec(void *context, uint32_t pid, uint64_t time)
{
	struct symbolizer *symbolizer = context;

	return check(symbolizer, !profile_timeline_exec(symbolizer->timeline, pid, time));
}

static int on_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		   uint32_t parent_tid, uint64_t time, bool before)
{
	struct symbolizer *symbolizer = context;

	return check(symbolizer, !profile_timeline_fork(symbolizer->timeline, pid, tid, parent_pid,
							parent_tid, time, before));
}

static bool same_cgroup(const void *item, const void *key)
{
	return ((const struct profile_cgroup *)item)->id == *(const uint64_t *)key;
}

struct profile_cgroup *symbolizer_cgroup(const struct symbolizer *symbolizer, uint64_t id)
{
	return hash_table_find(&symbolizer->cgroups, hash_mix(0, id), same_cgroup, &id);
}

/* A renamed cgroup gets its latest path, as in perf. */
static int on_cgroup(void *context, uint64_t id, const char *path)
{
	struct symbolizer *symbolizer = context;
	const char *kept = pool_string(&symbolizer->pool, path), *container;
	struct profile_cgroup *cgroup = symbolizer_cgroup(symbolizer, id);
	char name[CONTAINER_NAME_SIZE];

	container_name(path, name, sizeof(name));
	container = pool_string(&symbolizer->pool, name);
	if (kept && container && !cgroup) {
		cgroup = pool_alloc(&symbolizer->pool, sizeof(*cgroup));
		if (cgroup)
			cgroup->id = id;
		if (!cgroup || hash_table_add(&symbolizer->cgroups, hash_mix(0, id), cgroup))
			return symbolizer_out_of_memory(symbolizer);
	}
	if (!kept || !container)
		return symbolizer_out_of_memory(symbolizer);
	cgroup->path = kept;
	cgroup->container = container;
	return 0;
}

static int on_lost(void *context, uint64_t count)
{
	((struct symbolizer *)context)->lost += count;
	return 0;
}

/* If the recorder did not find the kernel, the file has no mapping for it: symbols given by the
 * user then apply to all kernel addresses. */
static int map_given_kernel(struct symbolizer *symbolizer, bool guest)
{
	struct perf_data_mapping_event everything = {
		.start = 1ull << 63,
		.size = UINT64_MAX >> 1,
		.pid = -1,
		.misc = guest ? PERF_RECORD_MISC_GUEST_KERNEL : PERF_RECORD_MISC_KERNEL,
		.name = guest ? "[guest.kernel.kallsyms]" : "[kernel.kallsyms]",
	};

	return on_mapping(symbolizer, &everything);
}

/* A wrong file given by the user is an error. */
static int check_given(struct symbolizer *symbolizer)
{
	const struct profile_options *options = &symbolizer->options;
	struct profile_kernel *kernel = &symbolizer->kernels[0];

	if (!options->kallsyms && !options->vmlinux)
		return 0;
	if (symbolizer->kernels[1].build_id_size && !symbolizer->has_host)
		kernel = &symbolizer->kernels[1];
	return profile_kernel_symbols(kernel, options) ? 0 : error_set(-EINVAL, "%s", kernel->note);
}

static int on_sample(void *context, const struct perf_data_sample *sample)
{
	struct symbolizer *symbolizer = context;

	if (sample->time && (!symbolizer->first_time || sample->time < symbolizer->first_time))
		symbolizer->first_time = sample->time;
	if (sample->time > symbolizer->last_time)
		symbolizer->last_time = sample->time;
	return 0;
}

int symbolizer_read_sideband(struct symbolizer *symbolizer)
{
	const struct perf_data_events events = {
		.sample = symbolizer->times.parts ? on_sample : NULL,
		.mapping = on_mapping,
		.comm = on_comm,
		.exec = on_exec,
		.fork = on_fork,
		.build_id = on_build_id,
		.cgroup = on_cgroup,
		.lost = on_lost,
		.check = symbolizer_check,
		.context = symbolizer,
	};
	bool given = symbolizer->options.kallsyms || symbolizer->options.vmlinux;
	int error = 0;

	if (given)
		error = map_given_kernel(symbolizer, false);
	if (given && !error)
		error = map_given_kernel(symbolizer, true);
	if (!error)
		error = perf_data_reader_run(symbolizer->reader, &events);
	if (error)
		return error;
	time_ranges_resolve(&symbolizer->times, symbolizer->first_time, symbolizer->last_time);
	if (profile_timeline_finish(symbolizer->timeline))
		return symbolizer_out_of_memory(symbolizer);
	return check_given(symbolizer);
}
