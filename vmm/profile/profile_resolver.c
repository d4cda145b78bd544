/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/profile/profile_resolver.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/profile/container_name.h"
#include "vmm/profile/image_inlines.h"
#include "vmm/profile/profile_frame_cache.h"
#include "vmm/profile/profile_image.h"
#include "vmm/profile/profile_input.h"
#include "vmm/profile/profile_timeline.h"

/* As perf's default; longer chains lose their outermost frames. */
#define DEEPEST 1024

struct build_id {
	const char *name;
	uint8_t bytes[ELF_BUILD_ID_MAX];
	size_t size;
};

struct cgroup {
	uint64_t id;
	const char *path, *container;
};

struct profile_resolver {
	struct profile_options options;
	struct profile_input input;
	struct perf_data_reader *reader;
	struct profile_pool pool;
	struct profile_timeline *timeline;
	struct profile_table images;    /* struct profile_image by path, build id and machine */
	struct profile_table build_ids; /* struct build_id by name */
	struct profile_table cgroups;   /* struct cgroup by id */
	struct profile_table frames;    /* struct frame by image and symbol or address */
	struct profile_frame_cache cache;
	struct profile_kernel kernels[2]; /* this machine's, and its guest's */
	const char *unknown, *none;       /* "[unknown]" and "" in the pool */
	int chosen;                       /* the event that is taken; -1: all */
	uint64_t lost;
	int (*each)(void *context, const struct resolved_sample *sample);
	void *each_context;
	struct resolved_frame stack[DEEPEST];
};

/* What tells frames of one image apart. */
struct frame {
	struct profile_frame shown;
	const struct profile_image *image; /* NULL: nothing is mapped there */
	uint64_t start; /* of the symbol, or the address itself, as the image's table has it */
};

static int out_of_memory(const struct profile_resolver *resolver)
{
	return error_set(-ENOMEM, "no memory for the profile in %s", resolver->options.input);
}

static bool same_name(const void *item, const void *key)
{
	return ((const struct build_id *)item)->name == key;
}

static uint64_t hash_pointer(const void *pointer)
{
	return profile_hash(0, (uintptr_t)pointer);
}

static int take_build_id(void *context, const struct perf_data_build_id *taken)
{
	struct profile_resolver *resolver = context;
	const char *name = profile_pool_string(&resolver->pool, taken->name);
	struct build_id *build_id = profile_pool_alloc(&resolver->pool, sizeof(*build_id));

	if (!name || !build_id)
		return out_of_memory(resolver);
	if (taken->build_id_size > ELF_BUILD_ID_MAX ||
	    profile_table_find(&resolver->build_ids, hash_pointer(name), same_name, name))
		return 0;
	build_id->name = name;
	build_id->size = taken->build_id_size;
	memcpy(build_id->bytes, taken->build_id, taken->build_id_size);
	return profile_table_add(&resolver->build_ids, hash_pointer(name), build_id) ? out_of_memory(resolver)
										     : 0;
}

static bool is_guest_mode(uint16_t mode)
{
	return mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_GUEST_USER;
}

static bool is_kernel_mode(uint16_t mode)
{
	return mode == PERF_RECORD_MISC_KERNEL || mode == PERF_RECORD_MISC_GUEST_KERNEL;
}

static bool same_image(const void *item, const void *key)
{
	const struct profile_image *a = item, *b = key;

	return a->path == b->path && a->kernel == b->kernel && a->kind == b->kind &&
	       a->build_id_size == b->build_id_size && !memcmp(a->build_id, b->build_id, a->build_id_size);
}

/* A mapping's own build id, else the one that the file's table has for its name. */
static void find_build_id(const struct profile_resolver *resolver, struct profile_image *image,
			  const struct perf_data_mapping_event *mapping)
{
	const char *name = image->kind == IMAGE_KERNEL ? image->name : image->path;
	const struct build_id *listed =
		profile_table_find(&resolver->build_ids, hash_pointer(name), same_name, name);

	if (mapping->build_id_size && mapping->build_id_size <= ELF_BUILD_ID_MAX) {
		image->build_id_size = mapping->build_id_size;
		memcpy(image->build_id, mapping->build_id, mapping->build_id_size);
	} else if (listed) {
		image->build_id_size = listed->size;
		memcpy(image->build_id, listed->bytes, listed->size);
	}
}

static int keep_image(struct profile_resolver *resolver, const struct profile_image *image,
		      struct profile_image **kept)
{
	uint64_t hash = profile_hash(hash_pointer(image->path), (uintptr_t)image->kernel);

	*kept = profile_table_find(&resolver->images, hash, same_image, image);
	if (*kept)
		return 0;
	*kept = profile_pool_alloc(&resolver->pool, sizeof(**kept));
	if (!*kept)
		return out_of_memory(resolver);
	**kept = *image;
	return profile_table_add(&resolver->images, hash, *kept) ? out_of_memory(resolver) : 0;
}

/* What tells the boots of a kernel apart. */
static int learn_kernel(struct profile_resolver *resolver, const struct profile_image *image,
			const struct perf_data_mapping_event *mapping)
{
	struct profile_kernel *kernel = image->kernel;
	struct profile_module_place *place;

	if (image->kind == IMAGE_KERNEL) {
		memcpy(kernel->build_id, image->build_id, sizeof(kernel->build_id));
		kernel->build_id_size = image->build_id_size;
		kernel->reference = image->reference;
		kernel->reference_address = mapping->offset;
	} else if (image->kind == IMAGE_MODULE) {
		place = profile_pool_alloc(&resolver->pool, sizeof(*place));
		if (!place)
			return -ENOMEM;
		*place = (struct profile_module_place){ image->module, mapping->start, kernel->modules };
		kernel->modules = place;
	}
	return 0;
}

static int take_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct profile_resolver *resolver = context;
	bool guest = is_guest_mode(mapping->misc), kernel = is_kernel_mode(mapping->misc);
	struct profile_image image = { 0 }, *kept;
	int error;

	if (mapping->is_code ? !profile_image_describe_code(&image, &resolver->pool, mapping->name)
			     : !profile_image_describe(&image, &resolver->pool, mapping->name, kernel))
		return out_of_memory(resolver);
	find_build_id(resolver, &image, mapping);
	if (kernel)
		image.kernel = &resolver->kernels[guest];
	if (kernel && learn_kernel(resolver, &image, mapping))
		return out_of_memory(resolver);
	error = keep_image(resolver, &image, &kept);
	if (error)
		return error;
	if (profile_timeline_map(resolver->timeline, guest, kernel ? PROFILE_KERNEL : mapping->pid,
				 mapping->time, mapping->start, mapping->size, mapping->offset, kept))
		return out_of_memory(resolver);
	return 0;
}

static int take_comm(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct profile_resolver *resolver = context;
	const char *name = profile_pool_string(&resolver->pool, comm);

	return !name || profile_timeline_comm(resolver->timeline, tid, time, name) ? out_of_memory(resolver)
										   : 0;
}

static int take_exec(void *context, uint32_t pid, uint64_t time)
{
	struct profile_resolver *resolver = context;

	return profile_timeline_exec(resolver->timeline, pid, time) ? out_of_memory(resolver) : 0;
}

static int take_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid, uint32_t parent_tid,
		     uint64_t time, bool before)
{
	struct profile_resolver *resolver = context;

	return profile_timeline_fork(resolver->timeline, pid, tid, parent_pid, parent_tid, time, before)
		       ? out_of_memory(resolver)
		       : 0;
}

static bool same_cgroup(const void *item, const void *key)
{
	return ((const struct cgroup *)item)->id == *(const uint64_t *)key;
}

static struct cgroup *find_cgroup(const struct profile_resolver *resolver, uint64_t id)
{
	return profile_table_find(&resolver->cgroups, profile_hash(0, id), same_cgroup, &id);
}

/* The latest path of one that was renamed, as for perf. */
static int take_cgroup(void *context, uint64_t id, const char *path)
{
	struct profile_resolver *resolver = context;
	const char *kept = profile_pool_string(&resolver->pool, path), *container;
	struct cgroup *cgroup = find_cgroup(resolver, id);
	char name[CONTAINER_NAME_SIZE];

	container_name(path, name, sizeof(name));
	container = profile_pool_string(&resolver->pool, name);
	if (kept && container && !cgroup) {
		cgroup = profile_pool_alloc(&resolver->pool, sizeof(*cgroup));
		if (cgroup)
			cgroup->id = id;
		if (!cgroup || profile_table_add(&resolver->cgroups, profile_hash(0, id), cgroup))
			return out_of_memory(resolver);
	}
	if (!kept || !container)
		return out_of_memory(resolver);
	cgroup->path = kept;
	cgroup->container = container;
	return 0;
}

static int take_lost(void *context, uint64_t count)
{
	((struct profile_resolver *)context)->lost += count;
	return 0;
}

/*
 * A file whose recorder could not find the kernel says nothing of where it
 * lies; with symbols given by the user, all kernel addresses are looked up in them.
 */
static int map_given_kernel(struct profile_resolver *resolver, bool guest)
{
	struct perf_data_mapping_event everything = {
		.start = 1ull << 63,
		.size = UINT64_MAX >> 1,
		.pid = -1,
		.misc = guest ? PERF_RECORD_MISC_GUEST_KERNEL : PERF_RECORD_MISC_KERNEL,
		.name = guest ? "[guest.kernel.kallsyms]" : "[kernel.kallsyms]",
	};

	return take_mapping(resolver, &everything);
}

/* A file that the user named must be right, or the report ends here. */
static int check_given(struct profile_resolver *resolver)
{
	const struct profile_options *options = &resolver->options;
	struct profile_kernel *kernel = &resolver->kernels[0];

	if (!options->kallsyms && !options->vmlinux)
		return 0;
	if (resolver->kernels[1].build_id_size)
		kernel = &resolver->kernels[1];
	return profile_kernel_symbols(kernel, options) ? 0 : error_set(-EINVAL, "%s", kernel->note);
}

static int read_sideband(struct profile_resolver *resolver)
{
	const struct perf_data_events events = {
		.mapping = take_mapping,
		.comm = take_comm,
		.exec = take_exec,
		.fork = take_fork,
		.build_id = take_build_id,
		.cgroup = take_cgroup,
		.lost = take_lost,
		.context = resolver,
	};
	bool given = resolver->options.kallsyms || resolver->options.vmlinux;
	int error = 0;

	if (given)
		error = map_given_kernel(resolver, false);
	if (given && !error)
		error = map_given_kernel(resolver, true);
	if (!error)
		error = perf_data_reader_run(resolver->reader, &events);
	if (error)
		return error;
	if (profile_timeline_finish(resolver->timeline))
		return out_of_memory(resolver);
	return check_given(resolver);
}

static int no_event(const struct profile_resolver *resolver)
{
	char list[512] = "";
	const struct perf_data_event *event;
	size_t used = 0;

	for (size_t i = 0; (event = profile_resolver_event(resolver, i)) && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%zu %s", i ? ", " : "", i,
					 event->name ? event->name : "");
	profile_make_showable(list);
	return error_set(-ENOENT, "there is no event %s in %s; it has %s", resolver->options.event,
			 resolver->options.input, list);
}

/* By name; else by number. */
static int choose_event(struct profile_resolver *resolver)
{
	const char *wanted = resolver->options.event;
	const struct perf_data_event *event;
	unsigned long number;
	char *end;

	resolver->chosen = -1;
	if (!wanted)
		return 0;
	for (size_t i = 0; (event = profile_resolver_event(resolver, i)); i++)
		if (event->name && !strcmp(event->name, wanted)) {
			resolver->chosen = (int)i;
			return 0;
		}
	number = strtoul(wanted, &end, 10);
	if (*wanted < '0' || *wanted > '9' || *end || !profile_resolver_event(resolver, number))
		return no_event(resolver);
	resolver->chosen = (int)number;
	return 0;
}

static int open_input(struct profile_resolver *resolver)
{
	const char *path = profile_input_open(&resolver->input, resolver->options.input);

	return path ? perf_data_reader_open(&resolver->reader, path) : -EIO;
}

int profile_resolver_open(struct profile_resolver **opened, const struct profile_options *options)
{
	struct profile_resolver *resolver = calloc(1, sizeof(*resolver));
	int error = -ENOMEM;

	if (!resolver)
		return error_set(-ENOMEM, "no memory for the profile in %s", options->input);
	resolver->options = *options;
	resolver->input.fd = -1;
	resolver->kernels[1].guest = true;
	resolver->timeline = profile_timeline_new(&resolver->pool);
	resolver->unknown = profile_pool_string(&resolver->pool, "[unknown]");
	resolver->none = profile_pool_string(&resolver->pool, "");
	if (!resolver->timeline || !resolver->unknown || !resolver->none ||
	    profile_frame_cache_open(&resolver->cache))
		error = out_of_memory(resolver);
	else
		error = open_input(resolver);
	if (!error)
		error = read_sideband(resolver);
	if (!error)
		error = choose_event(resolver);
	if (error) {
		profile_resolver_close(resolver);
		return error;
	}
	*opened = resolver;
	return 0;
}

void profile_resolver_close(struct profile_resolver *resolver)
{
	if (!resolver)
		return;
	for (size_t i = 0; i < resolver->images.capacity; i++) {
		struct profile_image *image = resolver->images.slots[i].item;

		if (!image)
			continue;
		symbols_free(image->symbols);
		image_inlines_free(image->inlines);
	}
	for (size_t i = 0; i < 2; i++) {
		symbols_free(resolver->kernels[i].symbols);
		image_inlines_free(resolver->kernels[i].inlines);
	}
	if (resolver->reader)
		perf_data_reader_close(resolver->reader);
	profile_input_close(&resolver->input);
	profile_frame_cache_close(&resolver->cache);
	profile_timeline_free(resolver->timeline);
	profile_table_free(&resolver->images);
	profile_table_free(&resolver->build_ids);
	profile_table_free(&resolver->cgroups);
	profile_table_free(&resolver->frames);
	profile_pool_free(&resolver->pool);
	free(resolver);
}

/* Names and files of inlined functions, and of lines, are the pool's. */
static bool same_frame(const void *item, const void *key)
{
	const struct frame *a = item, *b = key;

	return a->image == b->image && a->start == b->start && !a->shown.symbol == !b->shown.symbol &&
	       a->shown.kernel == b->shown.kernel && a->shown.inlined == b->shown.inlined &&
	       (!a->shown.inlined || a->shown.function == b->shown.function) &&
	       a->shown.file == b->shown.file && a->shown.line == b->shown.line;
}

static const struct profile_frame *keep_frame(struct profile_resolver *resolver, struct frame *frame)
{
	uint64_t hash = profile_hash(hash_pointer(frame->image), frame->start);
	struct frame *kept;

	if (frame->shown.inlined)
		hash = profile_hash(hash, (uintptr_t)frame->shown.function);
	hash = profile_hash(hash, frame->shown.line);
	kept = profile_table_find(&resolver->frames, hash, same_frame, frame);
	if (kept)
		return &kept->shown;
	kept = profile_pool_alloc(&resolver->pool, sizeof(*kept));
	if (!kept)
		return NULL;
	if (frame->shown.symbol)
		frame->shown.symbol = profile_pool_string(&resolver->pool, frame->shown.symbol);
	if (!frame->shown.inlined)
		frame->shown.function = frame->shown.symbol;
	*kept = *frame;
	if (profile_table_add(&resolver->frames, hash, kept))
		return NULL;
	return &kept->shown;
}

/* The frame of a function that was inlined into what is at ADDRESS; NULL without memory. */
static const struct profile_frame *inlined_frame(struct profile_resolver *resolver,
						 const struct profile_image *image, const struct frame *into,
						 const struct dwarf_function *function)
{
	struct frame frame = {
		.shown = { .image = image->name,
			   .address = into->shown.address,
			   .kernel = into->shown.kernel,
			   .inlined = true,
			   .function = profile_pool_string(&resolver->pool, function->name),
			   .line = function->line },
		.image = image,
	};
	char *shown;

	if (function->file)
		frame.shown.file = profile_pool_string(&resolver->pool, function->file);
	if (!frame.shown.function || (function->file && !frame.shown.file) ||
	    asprintf(&shown, "%s (inlined)", frame.shown.function) < 0)
		return NULL;
	frame.shown.symbol = shown;
	into = (const struct frame *)keep_frame(resolver, &frame);
	free(shown);
	return into ? &into->shown : NULL;
}

/* Keeps the frames of COUNT inlined FUNCTIONS, but of those that have no name. -ENOMEM. */
static int keep_inlined(struct profile_resolver *resolver, const struct profile_image *image,
			const struct frame *into, const struct dwarf_function *functions, size_t count,
			struct profile_frame_cache_entry *entry)
{
	const struct profile_frame **frames =
		profile_pool_alloc(&resolver->pool, count * sizeof(struct profile_frame *));

	if (!frames)
		return -ENOMEM;
	entry->inlined = frames;
	for (size_t i = 0; i < count; i++) {
		if (!functions[i].name)
			continue;
		frames[entry->inlined_count] = inlined_frame(resolver, image, into, &functions[i]);
		if (!frames[entry->inlined_count++])
			return -ENOMEM;
	}
	return 0;
}

/*
 * What is inlined where FRAME was sampled, into ENTRY, and its own line. What a caller was doing is its call,
 * before the address that it returns to; that may be another inlined function's already. -ENOMEM.
 */
static int find_inlined(struct profile_resolver *resolver, struct profile_image *image,
			const struct symbol *symbol, struct frame *frame,
			struct profile_frame_cache_entry *entry)
{
	struct dwarf_function functions[DWARF_INLINES_MAX];
	uint64_t at = entry->caller && entry->own > symbol->start ? entry->own - 1 : entry->own;
	size_t count = image_inlines_find(image, &resolver->options, at, functions);

	if (!count)
		return 0;
	frame->shown.line = functions[count - 1].line;
	if (functions[count - 1].file)
		frame->shown.file = profile_pool_string(&resolver->pool, functions[count - 1].file);
	return count > 1 ? keep_inlined(resolver, image, frame, functions, count - 1, entry) : 0;
}

/* The frame for ENTRY's address in a space as it is in ENTRY's epoch; fills in the rest of ENTRY. -ENOMEM. */
static int resolve(struct profile_resolver *resolver, const struct profile_space *space, bool kernel,
		   struct profile_frame_cache_entry *entry)
{
	const struct profile_mapping *mapping =
		space ? profile_space_find(space, entry->epoch, entry->address) : NULL;
	struct frame frame = {
		.shown = { .image = resolver->unknown, .address = entry->address, .kernel = kernel },
	};
	struct symbol symbol;
	int error = 0;

	entry->own = entry->address;
	if (mapping) {
		frame.image = mapping->image;
		frame.shown.image = mapping->image->name;
	}
	if (mapping && profile_image_symbol(mapping->image, &resolver->options, mapping->start,
					    mapping->offset, entry->address, &entry->own, &symbol)) {
		frame.shown.symbol = symbol.name;
		frame.start = symbol.start;
		if (resolver->options.inlined)
			error = find_inlined(resolver, mapping->image, &symbol, &frame, entry);
	} else {
		frame.start = entry->own;
	}
	entry->frame = error ? NULL : keep_frame(resolver, &frame);
	return entry->frame ? 0 : -ENOMEM;
}

static const struct frame *whole(const struct resolved_frame *frame)
{
	return (const struct frame *)((const char *)frame->frame - offsetof(struct frame, shown));
}

uint64_t resolved_frame_offset(const struct resolved_frame *frame)
{
	return frame->frame->symbol && !frame->frame->inlined ? frame->own - whole(frame)->start : 0;
}

uint64_t resolved_frame_address(const struct resolved_frame *frame)
{
	const struct profile_image *image = whole(frame)->image;

	return image && image->kind == IMAGE_KERNEL ? frame->own - image->kernel->moved : frame->own;
}

const char *resolved_frame_path(const struct resolved_frame *frame)
{
	const struct profile_image *image = whole(frame)->image;

	if (!image || image->kind == IMAGE_KERNEL)
		return frame->frame->image;
	return image->path;
}

/* A space at a sample's time; looked up when an address first asks for it. */
struct view {
	uint16_t mode;
	const struct profile_space *space;
	uint32_t epoch;
	uint32_t id; /* for the cache: UINT32_MAX without a space */
};

static struct view view_of(const struct profile_resolver *resolver, const struct perf_data_sample *sample,
			   uint16_t mode)
{
	struct view view = { .mode = mode, .id = UINT32_MAX - is_kernel_mode(mode) };

	if (mode == PERF_RECORD_MISC_CPUMODE_UNKNOWN)
		return view; /* in no space: what was mapped there is not sure */
	view.space = profile_timeline_space(resolver->timeline, is_guest_mode(mode),
					    is_kernel_mode(mode) ? PROFILE_KERNEL : (int32_t)sample->pid,
					    sample->time);
	if (view.space) {
		view.epoch = profile_space_epoch(view.space, sample->time);
		view.id = view.space->id;
	}
	return view;
}

static void push(struct profile_resolver *resolver, const struct profile_frame *frame, uint64_t own,
		 size_t *depth)
{
	if (*depth < DEEPEST)
		resolver->stack[(*depth)++] = (struct resolved_frame){ .frame = frame, .own = own };
}

/* What is inlined there, and the function that it is inlined into; CALLER: a call returns to ADDRESS. */
static int add_frame(struct profile_resolver *resolver, const struct view *view, uint64_t address,
		     bool caller, size_t *depth)
{
	struct profile_frame_cache_entry *entry;

	if (*depth == DEEPEST)
		return 0;
	entry = profile_frame_cache_entry(&resolver->cache, address, view->id, view->epoch,
					  caller && resolver->options.inlined);
	if (!entry || (!entry->frame && resolve(resolver, view->space, is_kernel_mode(view->mode), entry)))
		return out_of_memory(resolver);
	for (size_t i = 0; i < entry->inlined_count; i++)
		push(resolver, entry->inlined[i], entry->own, depth);
	push(resolver, entry->frame, entry->own, depth);
	return 0;
}

/* The mode that a marker in a callchain switches to; 0: none that is known. */
static uint16_t mode_behind(uint64_t marker)
{
	switch (marker) {
	case PERF_CONTEXT_KERNEL:
		return PERF_RECORD_MISC_KERNEL;
	case PERF_CONTEXT_USER:
		return PERF_RECORD_MISC_USER;
	case PERF_CONTEXT_HV:
		return PERF_RECORD_MISC_HYPERVISOR;
	case PERF_CONTEXT_GUEST_KERNEL:
		return PERF_RECORD_MISC_GUEST_KERNEL;
	case PERF_CONTEXT_GUEST_USER:
		return PERF_RECORD_MISC_GUEST_USER;
	default:
		return 0;
	}
}

/*
 * The callchain's frames behind the first one, which is the sampled address itself. The first of each mode is
 * where the CPU was, or is to go on; behind it are addresses that calls return to.
 */
static int add_callchain(struct profile_resolver *resolver, const struct perf_data_sample *sample,
			 struct view view, size_t *depth)
{
	bool first = true, caller = false;
	int error = 0;

	for (size_t i = 0; i < sample->callchain_size && !error; i++) {
		uint64_t address = sample->callchain[i];

		if (address >= PERF_CONTEXT_MAX) {
			uint16_t mode = mode_behind(address);

			if (!mode)
				return 0;
			if (mode != view.mode)
				view = view_of(resolver, sample, mode);
			caller = false;
			continue;
		}
		if (!first || address != sample->ip)
			error = add_frame(resolver, &view, address, caller, depth);
		first = false;
		caller = true;
	}
	return error;
}

/* What ran outside of the guest is none of its code: one frame for all of it. */
static int add_host_frame(struct profile_resolver *resolver, size_t *depth)
{
	struct frame frame = { .shown = { .symbol = "[host]", .image = "[hypervisor]" } };
	const struct profile_frame *kept = keep_frame(resolver, &frame);

	if (!kept)
		return out_of_memory(resolver);
	resolver->stack[(*depth)++] = (struct resolved_frame){ .frame = kept };
	return 0;
}

static int add_frames(struct profile_resolver *resolver, const struct perf_data_sample *sample, size_t *depth)
{
	struct view view = view_of(resolver, sample, sample->misc);
	int error;

	if (sample->misc == PERF_RECORD_MISC_HYPERVISOR)
		return add_host_frame(resolver, depth);
	error = add_frame(resolver, &view, sample->ip, false, depth);
	if (!error && !resolver->options.leaves_only)
		error = add_callchain(resolver, sample, view, depth);
	return error;
}

/* Whose work it is: the program's, whatever its threads call themselves. */
static const char *app_of(const struct profile_resolver *resolver, const struct perf_data_sample *sample,
			  const char *comm)
{
	const struct profile_image *program =
		profile_timeline_program(resolver->timeline, sample->pid, sample->time);

	return program ? program->name : comm;
}

static void name_cgroup(const struct profile_resolver *resolver, struct resolved_sample *sample)
{
	uint64_t id = sample->recorded->cgroup;
	const struct cgroup *cgroup = id ? find_cgroup(resolver, id) : NULL;

	sample->cgroup = cgroup ? cgroup->path : resolver->none;
	sample->container = cgroup ? cgroup->container : resolver->none;
}

static int take_sample(void *context, const struct perf_data_sample *sample)
{
	struct profile_resolver *resolver = context;
	uint32_t vcpu = sample->vcpu != UINT32_MAX ? sample->vcpu : sample->cpu;
	struct resolved_sample resolved = { .recorded = sample, .frames = resolver->stack, .vcpu = vcpu };
	int error;

	if ((resolver->chosen >= 0 && sample->event != resolver->chosen) ||
	    (resolver->options.vcpu >= 0 && vcpu != (uint32_t)resolver->options.vcpu))
		return 0;
	error = add_frames(resolver, sample, &resolved.depth);
	if (error)
		return error;
	resolved.comm = profile_timeline_comm_of(resolver->timeline, sample->tid, sample->time);
	resolved.app = app_of(resolver, sample, resolved.comm);
	name_cgroup(resolver, &resolved);
	resolved.tid = resolver->options.threads ? sample->tid : 0;
	return resolver->each(resolver->each_context, &resolved);
}

int profile_resolver_run(struct profile_resolver *resolver,
			 int (*each)(void *context, const struct resolved_sample *sample), void *context)
{
	const struct perf_data_events events = { .sample = take_sample, .context = resolver };

	resolver->each = each;
	resolver->each_context = context;
	return perf_data_reader_run(resolver->reader, &events);
}

const struct perf_data_event *profile_resolver_event(const struct profile_resolver *resolver, size_t number)
{
	return perf_data_reader_event(resolver->reader, number);
}

/* Only our recorder's records are totals of vCPUs. */
bool profile_resolver_count(const struct profile_resolver *resolver, size_t number,
			    struct perf_data_count *count)
{
	const struct perf_data_summary *summary = perf_data_reader_summary(resolver->reader);

	return !strncmp(summary->version, "kvmscope ", strlen("kvmscope ")) &&
	       perf_data_reader_count(resolver->reader, number, resolver->options.vcpu, count);
}

int profile_resolver_chosen(const struct profile_resolver *resolver)
{
	return resolver->chosen;
}

const struct perf_data_summary *profile_resolver_summary(const struct profile_resolver *resolver)
{
	return perf_data_reader_summary(resolver->reader);
}

uint64_t profile_resolver_lost(const struct profile_resolver *resolver)
{
	return resolver->lost;
}

const char *profile_resolver_note(const struct profile_resolver *resolver)
{
	return *resolver->kernels[1].note ? resolver->kernels[1].note : resolver->kernels[0].note;
}

static void count_inlines(const struct image_inlines *inlines, size_t *asked, size_t *unknown)
{
	if (!inlines)
		return;
	++*asked;
	*unknown += !image_inlines_known(inlines);
}

void profile_resolver_inlines(const struct profile_resolver *resolver, size_t *asked, size_t *unknown)
{
	*asked = *unknown = 0;
	for (size_t i = 0; i < resolver->images.capacity; i++) {
		const struct profile_image *image = resolver->images.slots[i].item;

		if (image)
			count_inlines(image->inlines, asked, unknown);
	}
	for (size_t i = 0; i < 2; i++)
		count_inlines(resolver->kernels[i].inlines, asked, unknown);
}

struct profile_pool *profile_resolver_pool(struct profile_resolver *resolver)
{
	return &resolver->pool;
}
