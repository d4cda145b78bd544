/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/bpf_skeletons.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/bpf_library.h"
#include "vmm/attach/kvm_tracepoint.h"

#include "guest_sample.skel.h"

#define OUTSIDE_LINKS 3

struct program_set {
	struct guest_sample *programs;         /* NULL: not loaded */
	struct rip_events *rip_events;         /* NULL: not needed */
	struct bpf_link *links[OUTSIDE_LINKS]; /* of the programs for time outside; NULL */
	unsigned int vms;
	bool vm_used[BPF_VMS_MAX], vcpu_map_used[BPF_VCPU_MAPS_MAX]; /* numbers in use */
};

/* All VMs of this process; with the lock. Those whose time outside is sampled have programs of
 * their own, which slow down all exits and may not work in this kernel. */
static struct {
	pthread_mutex_t lock;
	bool avoid_cast;
	struct program_set sets[2]; /* by whether time outside is sampled */
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct bpf_vm {
	struct program_set *set;
	const struct guest_sample *programs;
	__u32 number;
	int bell_fd;              /* a map */
	uint32_t expected;        /* vCPUs that will share the next map */
	struct bpf_vcpu_map *map; /* the map with room for more vCPUs; NULL: none */
};

/* The map of some vCPUs, mapped into memory: each vCPU is followed by its ring. Freed when all
 * of them are closed. */
struct bpf_vcpu_map {
	__u32 number; /* among those of all VMs */
	uint32_t chunks, count;
	uint32_t opened, closed; /* vCPUs */
	uint8_t *mapped;
};

/* Loading */

static int prepare_outside(struct guest_sample *programs, bool outside,
			   struct kvm_exit_tracepoint *tracepoint)
{
	int error = outside ? kvm_exit_tracepoint_find(tracepoint) : 0;

	bpf_program__set_autoload(programs->progs.begin_exit, outside);
	bpf_program__set_autoload(programs->progs.end_exit, outside);
	bpf_program__set_autoload(programs->progs.switch_vcpus, outside);
	programs->rodata->reason_offset = tracepoint->reason;
	programs->rodata->isa_offset = tracepoint->isa;
	programs->rodata->rip_offset = tracepoint->rip;
	return !error && outside && !tracepoint->rip
		       ? error_set(-ENOTSUP, "this kernel's tracepoint kvm:kvm_exit lacks the "
					     "guest's RIP: a newer kernel has it")
		       : error;
}

/* The entry before the exit, so that each exit that is seen has its entry seen. */
static int attach_outside(struct program_set *set, unsigned int tracepoint)
{
	const struct guest_sample *programs = set->programs;

	set->links[0] = bpf_program__attach(programs->progs.switch_vcpus);
	if (set->links[0])
		set->links[1] = bpf_program__attach(programs->progs.end_exit);
	if (set->links[1])
		set->links[2] = kvm_exit_tracepoint_attach(tracepoint, programs->progs.begin_exit);
	return set->links[2] ? 0
			     : error_set(-errno,
					 "cannot attach to tracepoints of KVM and the scheduler: "
					 "%s (run as root, or with CAP_BPF and CAP_PERFMON)",
					 strerror(errno));
}

enum bpf_kvm bpf_kvm(void)
{
	if (!access("/sys/module/kvm_intel", F_OK))
		return BPF_KVM_INTEL;
	return access("/sys/module/kvm_amd", F_OK) ? BPF_KVM_OTHER : BPF_KVM_AMD;
}

static int load(struct program_set *set, const struct btf *kernel)
{
	struct guest_sample *programs = set->programs;
	const bool outside = set == &shared.sets[true];
	const bool intel = bpf_kvm() == BPF_KVM_INTEL;
	struct kvm_exit_tracepoint tracepoint = { 0 };
	int error = prepare_outside(programs, outside, &tracepoint);

	if (error)
		return error;
	bpf_map__set_max_entries(programs->maps.rip_events, (uint32_t)rip_events_count());
	programs->rodata->is_amd = bpf_kvm() == BPF_KVM_AMD;
	programs->rodata->can_cast =
		!shared.avoid_cast &&
		btf__find_by_name_kind(kernel, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
	bpf_program__set_autoload(programs->progs.try_direct_map, programs->rodata->can_cast);
	error = guest_sample__load(programs);
	if (error == -EPERM) /* EACCES comes from the verifier */
		return error_set(-EACCES,
				 "BPF programs may not be loaded: run as root, or with CAP_BPF and "
				 "CAP_PERFMON, and CAP_SYS_ADMIN if KVM is a module");
	if (error)
		return error_set(
			-ENOTSUP,
			"this kernel rejects the BPF program (%s): it needs Linux 6.1 and BTF, "
			"see --verbose",
			strerror(-error));
	if (outside)
		error = attach_outside(set, tracepoint.id);
	if (error)
		return error;
	if (programs->rodata->can_cast &&
	    direct_map_find(bpf_program__fd(programs->progs.try_direct_map)))
		log_debug("%s: guest memory is read through the VMM's address space only",
			  error_message());
	return intel ? rip_events_open(&set->rip_events, bpf_map__fd(programs->maps.rip_events))
		     : 0;
}

/* When libbpf first needs links of perf events it loads a program to see whether the kernel has
 * them. A thread that is confined later may not load any, so this is now. */
static void detect_links(const struct bpf_program *program)
{
	const struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = UINT32_MAX,
		.disabled = 1,
	};
	int event = (int)syscall(SYS_perf_event_open, &attribute, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_link *link =
		event < 0 ? NULL : bpf_program__attach_perf_event_opts(program, event, NULL);

	if (!link && event >= 0)
		close(event);
	bpf_link__destroy(link); /* closes the event, too */
}

static void unload(struct program_set *set)
{
	for (size_t i = 0; i < OUTSIDE_LINKS; i++) {
		bpf_link__destroy(set->links[i]);
		set->links[i] = NULL;
	}
	rip_events_close(set->rip_events);
	guest_sample__destroy(set->programs);
	set->rip_events = NULL;
	set->programs = NULL;
}

static int open_programs(struct program_set *set, const struct btf *kernel)
{
	int error = bpf_library_check_iterators(kernel);

	if (error)
		return error;
	set->programs = guest_sample__open();
	if (!set->programs)
		return error_set(-ENOTSUP, "libbpf cannot open the BPF program: %s",
				 strerror(errno));
	error = load(set, kernel);
	if (error)
		unload(set);
	else
		detect_links(set->programs->progs.sample);
	return error;
}

static int load_programs(struct program_set *set)
{
	struct btf *kernel = bpf_library_types();
	int error = open_programs(set, kernel);

	bpf_library_free_types(kernel);
	return error;
}

void bpf_programs_avoid_cast(bool avoid)
{
	pthread_mutex_lock(&shared.lock);
	shared.avoid_cast = avoid;
	pthread_mutex_unlock(&shared.lock);
}

/* VMs */

/* Allocates the first free number; COUNT: none is free. */
static __u32 allocate_number(bool *taken, __u32 count)
{
	__u32 number = 0;

	while (number < count && taken[number])
		number++;
	if (number < count)
		taken[number] = true;
	return number;
}

static int enter(struct bpf_vm *vm)
{
	int error = 0;

	pthread_mutex_lock(&shared.lock);
	if (!vm->set->programs)
		error = load_programs(vm->set);
	vm->programs = vm->set->programs;
	if (!error) {
		vm->number = allocate_number(vm->set->vm_used, BPF_VMS_MAX);
		if (vm->number == BPF_VMS_MAX)
			error = error_set(-EMFILE, "a process can sample at most %d VMs by BPF",
					  BPF_VMS_MAX);
		else
			vm->set->vms++;
	}
	pthread_mutex_unlock(&shared.lock);
	return error;
}

static void leave(struct bpf_vm *vm)
{
	pthread_mutex_lock(&shared.lock);
	vm->set->vm_used[vm->number] = false;
	if (!--vm->set->vms)
		unload(vm->set);
	pthread_mutex_unlock(&shared.lock);
}

static int set_inner_map(const struct bpf_map *of_all, __u32 number, int fd)
{
	return bpf_map__update_elem(of_all, &number, sizeof(number), &fd, sizeof(fd), BPF_ANY);
}

static void clear_inner_map(const struct bpf_map *of_all, __u32 number)
{
	bpf_map__delete_elem(of_all, &number, sizeof(number), 0);
}

/* One page: it holds a few words. */
static int make_bell(struct bpf_vm *vm)
{
	vm->bell_fd =
		bpf_map_create(BPF_MAP_TYPE_RINGBUF, "bell", 0, 0, (__u32)getpagesize(), NULL);
	return vm->bell_fd < 0 ? -errno
			       : set_inner_map(vm->programs->maps.bells, vm->number, vm->bell_fd);
}

int bpf_vm_open(struct bpf_vm **result, bool outside)
{
	struct bpf_vm *vm = malloc(sizeof(*vm));
	int error;

	if (!vm)
		return error_set(-ENOMEM, "no memory for a VM");
	*vm = (struct bpf_vm){ .set = &shared.sets[outside], .bell_fd = -1 };
	error = enter(vm);
	if (error) {
		free(vm);
		return error;
	}
	error = make_bell(vm);
	if (error) {
		bpf_vm_close(vm);
		return error_set(error, "cannot create the BPF map of a VM: %s", strerror(-error));
	}
	*result = vm;
	return 0;
}

void bpf_vm_close(struct bpf_vm *vm)
{
	if (!vm)
		return;
	clear_inner_map(vm->programs->maps.bells, vm->number);
	if (vm->bell_fd >= 0)
		close(vm->bell_fd);
	leave(vm);
	free(vm);
}

int bpf_vm_bell_fd(const struct bpf_vm *vm)
{
	return vm->bell_fd;
}

/* vCPUs */

static uint32_t elements_of(const struct bpf_vcpu_map *map)
{
	return map->count * (1 + map->chunks);
}

static size_t mapped_size(const struct bpf_vcpu_map *map)
{
	return (size_t)elements_of(map) * BPF_CHUNK;
}

/* The map exists as long as it is mapped or in the outer map. */
static int map_memory(const struct bpf_vm *vm, struct bpf_vcpu_map *map, int fd)
{
	void *mapped = mmap(NULL, mapped_size(map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int error;

	if (mapped == MAP_FAILED)
		return -errno;
	map->mapped = mapped;
	error = set_inner_map(vm->programs->maps.vcpus, map->number, fd);
	if (error)
		munmap(mapped, mapped_size(map));
	return error;
}

static int make_map(const struct bpf_vm *vm, struct bpf_vcpu_map *map)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "vcpus", sizeof(__u32), BPF_CHUNK,
				elements_of(map), &options);
	int error;

	if (fd < 0)
		return -errno;
	error = map_memory(vm, map, fd);
	close(fd);
	return error;
}

static int reserve_number(struct program_set *set, struct bpf_vcpu_map *map)
{
	pthread_mutex_lock(&shared.lock);
	map->number = allocate_number(set->vcpu_map_used, BPF_VCPU_MAPS_MAX);
	pthread_mutex_unlock(&shared.lock);
	return map->number < BPF_VCPU_MAPS_MAX
		       ? 0
		       : error_set(
				 -EMFILE,
				 "a process can have at most %d BPF maps of vCPUs: one per VM, and "
				 "one per hot-plugged vCPU",
				 BPF_VCPU_MAPS_MAX);
}

static void free_vcpu_map(struct program_set *set, struct bpf_vcpu_map *map)
{
	pthread_mutex_lock(&shared.lock);
	set->vcpu_map_used[map->number] = false;
	pthread_mutex_unlock(&shared.lock);
	free(map);
}

static int open_vcpu_map(struct bpf_vm *vm, uint32_t chunks)
{
	struct bpf_vcpu_map *map = malloc(sizeof(*map));
	int error;

	if (!map)
		return error_set(-ENOMEM, "no memory for a vCPU");
	*map = (struct bpf_vcpu_map){ .chunks = chunks, .count = vm->expected ? vm->expected : 1 };
	error = reserve_number(vm->set, map);
	if (error) {
		free(map);
		return error;
	}
	error = make_map(vm, map);
	if (error) {
		free_vcpu_map(vm->set, map);
		return error_set(error, "cannot create the BPF map of a vCPU: %s",
				 strerror(-error));
	}
	vm->expected = 0;
	vm->map = map;
	return 0;
}

static void close_vcpu_map(struct bpf_vm *vm, struct bpf_vcpu_map *map)
{
	if (vm->map == map)
		vm->map = NULL;
	clear_inner_map(vm->programs->maps.vcpus, map->number);
	munmap(map->mapped, mapped_size(map));
	free_vcpu_map(vm->set, map);
}

void bpf_vm_reserve(struct bpf_vm *vm, uint32_t count)
{
	vm->expected = count;
}

int bpf_vcpu_open(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu, uint32_t chunks)
{
	const struct bpf_vcpu_map *map = vm->map;
	int error = 0;
	uint8_t *first;

	if (!map || map->chunks != chunks || map->opened == map->count)
		error = open_vcpu_map(vm, chunks);
	if (error)
		return error;
	*vcpu = (struct bpf_vm_vcpu){ .chunks = chunks,
				      .map = vm->map,
				      .first = vm->map->opened++ * (1 + chunks) };
	first = vcpu->map->mapped + (size_t)vcpu->first * BPF_CHUNK;
	vcpu->ring = (struct bpf_ring){ .vcpu = (void *)first, .chunks = first + BPF_CHUNK };
	vcpu->ring.vcpu->vm = vm->number;
	vcpu->ring.vcpu->chunks = chunks;
	return 0;
}

/* The room of the vCPU opened last is reused: a vCPU that cannot be sampled is tried repeatedly. */
void bpf_vcpu_close(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu)
{
	struct bpf_vcpu_map *map = vcpu->map;

	if (vcpu->first == (map->opened - 1) * (1 + map->chunks)) {
		memset(vcpu->ring.vcpu, 0, BPF_CHUNK);
		map->opened--;
	} else {
		map->closed++;
	}
	if (map->closed == map->opened)
		close_vcpu_map(vm, map);
}

int bpf_vcpu_sample(const struct bpf_vm *vm, const struct bpf_vm_vcpu *vcpu, int event_fd,
		    struct bpf_link **link)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options,
		    .bpf_cookie = (__u64)vcpu->map->number << 32 | vcpu->first);

	*link = bpf_program__attach_perf_event_opts(vm->programs->progs.sample, event_fd, &options);
	return *link ? 0
		     : error_set(-errno, "cannot attach the BPF program to a perf event: %s",
				 strerror(errno));
}

int bpf_outside_add(const struct bpf_vm *vm, const struct bpf_vm_vcpu *vcpu, __u32 tid,
		    uint64_t period, uint32_t wanted)
{
	const struct bpf_outside thread = { .place = (__u64)vcpu->map->number << 32 | vcpu->first,
					    .period = period,
					    .wanted = wanted };
	int error = bpf_map__update_elem(vm->programs->maps.outside, &tid, sizeof(tid), &thread,
					 sizeof(thread), BPF_ANY);

	return error ? error_set(error, "cannot add a vCPU thread to a BPF map: %s",
				 strerror(-error))
		     : 0;
}

void bpf_outside_remove(const struct bpf_vm *vm, __u32 tid)
{
	bpf_map__delete_elem(vm->programs->maps.outside, &tid, sizeof(tid), 0);
}

/* Iterating */

static int read_found(int fd, void (*each)(void *context, const struct bpf_found *found),
		      void *context)
{
	struct bpf_found found;
	ssize_t size;

	while ((size = read(fd, &found, sizeof(found))) == sizeof(found))
		each(context, &found);
	return size < 0 ? error_set(-errno, "cannot iterate over the VMM's files by BPF: %s",
				    strerror(errno))
			: 0;
}

/* Runs the iterator over the files of the process of PID_FD. */
static int iterate(const struct guest_sample *programs, int pid_fd,
		   void (*each)(void *context, const struct bpf_found *found), void *context)
{
	union bpf_iter_link_info which = { .task.pid_fd = (__u32)pid_fd };
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &which,
		    .link_info_len = sizeof(which));
	struct bpf_link *link = bpf_program__attach_iter(programs->progs.find_vms, &options);
	int fd, error;

	if (!link)
		return error_set(errno == ESRCH || errno == EMFILE ? -errno : -ENOTSUP,
				 "cannot attach a BPF iterator over a process's files: %s",
				 strerror(errno));
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0) {
		error = error_set(-errno, "cannot iterate over the VMM's files by BPF: %s",
				  strerror(errno));
	} else {
		error = read_found(fd, each, context);
		close(fd);
	}
	bpf_link__destroy(link);
	return error;
}

bool bpf_programs_are_intel(const struct bpf_vm *vm)
{
	return vm->set->rip_events;
}

struct vm_search {
	int fd;
	uint64_t vm;
};

static void match_vm(void *context, const struct bpf_found *found)
{
	struct vm_search *search = context;

	if (found->type == BPF_FOUND_VM && found->id == (unsigned int)search->fd)
		search->vm = found->vm;
}

/* With the lock. */
static int select_vm(const struct guest_sample *programs, int pid_fd, int vm_fd)
{
	struct vm_search search = { .fd = vm_fd };
	int error = 0;

	programs->bss->vm_selected = 0;
	if (vm_fd)
		error = iterate(programs, pid_fd, match_vm, &search);
	if (!error && vm_fd && !search.vm)
		error = error_set(-ESRCH, "the VM at descriptor %d has ended", vm_fd);
	programs->bss->vm_selected = search.vm;
	return error;
}

/* One at a time, because of the program's parameters; the kernel does not wait for the VMM. */
int bpf_programs_iterate(int pid_fd, int vm_fd, uint64_t slot_size_min,
			 void (*each)(void *context, const struct bpf_found *found), void *context)
{
	const struct guest_sample *programs;
	int error;

	pthread_mutex_lock(&shared.lock);
	programs = shared.sets[!shared.sets[false].programs].programs;
	programs->bss->slot_size_min = slot_size_min;
	error = select_vm(programs, pid_fd, vm_fd);
	if (!error)
		error = iterate(programs, pid_fd, each, context);
	pthread_mutex_unlock(&shared.lock);
	return error;
}
