// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/bpf_programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/rip_events.h"

#include "guest_sample.skel.h"

/* All VMs of the process; with the lock. */
static struct {
	pthread_mutex_t lock;
	struct guest_sample *programs; /* NULL: not loaded */
	struct rip_events *rip_events; /* NULL: not needed */
	unsigned int vms;
	bool taken[BPF_VMS_MAX]; /* numbers of VMs */
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct bpf_vm {
	const struct guest_sample *programs;
	__u32 number;
	int ring_fd, slots_fd, vcpus_fd, cpus_fd; /* maps */
};

/* Loading. */

/* What libbpf says of its own accord. */
static int print(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char text[512];

	if (level != LIBBPF_WARN)
		return 0;
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\n")] = '\0';
	log_debug("%s", text);
	return 0;
}

static bool is_amd(void)
{
	return !access("/sys/module/kvm_amd", F_OK) && access("/sys/module/kvm_intel", F_OK);
}

static bool is_intel(void)
{
	return !access("/sys/module/kvm_intel", F_OK);
}

/* Before Linux 6.1, which has the type, an iterator takes no notice of the process that it is given, and
 * tells of all. */
static int check_iterator(void)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool of_one = btf && btf__find_by_name_kind(btf, "bpf_iter_task_type", BTF_KIND_ENUM) > 0;

	btf__free(btf);
	return of_one ? 0
		      : error_set(
				-ENOTSUP,
				"this kernel's BPF can not look at the files of one process: it needs Linux 6.1 and BTF");
}

static int load(struct guest_sample *programs)
{
	int error;

	bpf_map__set_max_entries(programs->maps.rip_events, (uint32_t)rip_events_count());
	programs->rodata->is_amd = is_amd();
	error = guest_sample__load(programs);
	if (error == -EPERM) /* EACCES is the verifier's */
		return error_set(
			-EACCES,
			"BPF programs may not be loaded: be root, or have CAP_BPF and CAP_PERFMON, and "
			"CAP_SYS_ADMIN where KVM is a module");
	if (error)
		return error_set(
			-ENOTSUP,
			"this kernel does not load the BPF program (%s): it needs Linux 6.1 and BTF, see "
			"--verbose",
			strerror(-error));
	return is_intel() ? rip_events_open(&shared.rip_events, bpf_map__fd(programs->maps.rip_events)) : 0;
}

static void unload(void)
{
	rip_events_close(shared.rip_events);
	guest_sample__destroy(shared.programs);
	shared.rip_events = NULL;
	shared.programs = NULL;
}

static int open_programs(void)
{
	int error = check_iterator();

	if (error)
		return error;
	libbpf_set_print(print);
	shared.programs = guest_sample__open();
	if (!shared.programs)
		return error_set(-ENOTSUP, "libbpf can not open its program: %s", strerror(errno));
	error = load(shared.programs);
	if (error)
		unload();
	return error;
}

/* The types of the whole kernel were in memory for a moment. */
static int load_programs(void)
{
	int error = open_programs();

	malloc_trim(0);
	return error;
}

/* VMs. */

static int take_number(struct bpf_vm *vm)
{
	__u32 number = 0;

	while (number < BPF_VMS_MAX && shared.taken[number])
		number++;
	if (number == BPF_VMS_MAX)
		return error_set(-EMFILE, "one process samples %d VMs by BPF at most", BPF_VMS_MAX);
	shared.taken[number] = true;
	shared.vms++;
	vm->number = number;
	vm->programs = shared.programs;
	return 0;
}

static int enter(struct bpf_vm *vm)
{
	int error = 0;

	pthread_mutex_lock(&shared.lock);
	if (!shared.programs)
		error = load_programs();
	if (!error)
		error = take_number(vm);
	pthread_mutex_unlock(&shared.lock);
	return error;
}

static void leave(struct bpf_vm *vm)
{
	pthread_mutex_lock(&shared.lock);
	shared.taken[vm->number] = false;
	if (!--shared.vms)
		unload();
	pthread_mutex_unlock(&shared.lock);
}

static int make_maps(struct bpf_vm *vm, uint32_t ring_size, unsigned int vcpus)
{
	LIBBPF_OPTS(bpf_map_create_opts, many, .map_flags = BPF_F_INNER_MAP);

	vm->ring_fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "samples", 0, 0, ring_size, NULL);
	vm->slots_fd =
		bpf_map_create(BPF_MAP_TYPE_ARRAY, "slots", sizeof(__u32), sizeof(struct bpf_slots), 1, NULL);
	vm->vcpus_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "vcpus", sizeof(__u32), sizeof(struct bpf_vcpu),
				      vcpus, &many);
	vm->cpus_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "cpus", sizeof(__u32), sizeof(struct bpf_cpu), vcpus,
				     &many);
	return vm->ring_fd < 0 || vm->slots_fd < 0 || vm->vcpus_fd < 0 || vm->cpus_fd < 0 ? -errno : 0;
}

static int show_map(const struct bpf_vm *vm, const struct bpf_map *of_all, int fd)
{
	return bpf_map__update_elem(of_all, &vm->number, sizeof(vm->number), &fd, sizeof(fd), BPF_ANY);
}

static int show_maps(const struct bpf_vm *vm)
{
	int error = show_map(vm, vm->programs->maps.slots, vm->slots_fd);

	if (!error)
		error = show_map(vm, vm->programs->maps.samples, vm->ring_fd);
	if (!error)
		error = show_map(vm, vm->programs->maps.cpus, vm->cpus_fd);
	return error ? error : show_map(vm, vm->programs->maps.vcpus, vm->vcpus_fd);
}

static void hide_maps(const struct bpf_vm *vm)
{
	const struct bpf_map *const all[] = { vm->programs->maps.vcpus, vm->programs->maps.cpus,
					      vm->programs->maps.samples, vm->programs->maps.slots };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		bpf_map__delete_elem(all[i], &vm->number, sizeof(vm->number), 0);
}

int bpf_vm_open(struct bpf_vm **result, uint32_t ring_size, unsigned int vcpus)
{
	struct bpf_vm *vm = malloc(sizeof(*vm));
	int error;

	if (!vm)
		return error_set(-ENOMEM, "no memory for a VM");
	*vm = (struct bpf_vm){ .ring_fd = -1, .slots_fd = -1, .vcpus_fd = -1, .cpus_fd = -1 };
	error = enter(vm);
	if (error) {
		free(vm);
		return error;
	}
	error = make_maps(vm, ring_size, vcpus);
	if (!error)
		error = show_maps(vm);
	if (error) {
		bpf_vm_close(vm);
		return error_set(error, "can not make the BPF maps of a VM: %s", strerror(-error));
	}
	*result = vm;
	return 0;
}

void bpf_vm_close(struct bpf_vm *vm)
{
	if (!vm)
		return;
	hide_maps(vm);
	if (vm->ring_fd >= 0)
		close(vm->ring_fd);
	if (vm->slots_fd >= 0)
		close(vm->slots_fd);
	if (vm->vcpus_fd >= 0)
		close(vm->vcpus_fd);
	if (vm->cpus_fd >= 0)
		close(vm->cpus_fd);
	leave(vm);
	free(vm);
}

int bpf_vm_ring_fd(const struct bpf_vm *vm)
{
	return vm->ring_fd;
}

int bpf_vm_set_slots(struct bpf_vm *vm, const struct bpf_slots *slots)
{
	const __u32 zero = 0;

	return bpf_map_update_elem(vm->slots_fd, &zero, slots, BPF_ANY);
}

int bpf_vm_set_vcpu(struct bpf_vm *vm, unsigned int id, const struct bpf_vcpu *vcpu)
{
	const __u32 key = id;

	return bpf_map_update_elem(vm->vcpus_fd, &key, vcpu, BPF_ANY);
}

int bpf_vm_set_cpu(struct bpf_vm *vm, unsigned int id, const struct bpf_cpu *cpu)
{
	const __u32 key = id;

	return bpf_map_update_elem(vm->cpus_fd, &key, cpu, BPF_ANY);
}

int bpf_vm_get_vcpu(const struct bpf_vm *vm, unsigned int id, struct bpf_vcpu *vcpu)
{
	const __u32 key = id;

	return bpf_map_lookup_elem(vm->vcpus_fd, &key, vcpu);
}

int bpf_vm_sample(struct bpf_vm *vm, unsigned int id, int event_fd, struct bpf_link **link)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options, .bpf_cookie = BPF_COOKIE(vm->number, id));

	*link = bpf_program__attach_perf_event_opts(vm->programs->progs.take, event_fd, &options);
	return *link ? 0
		     : error_set(-errno, "can not run a BPF program on a perf event: %s", strerror(errno));
}

/* Looking. */

static int read_found(int fd, void (*each)(void *context, const struct bpf_found *found), void *context)
{
	struct bpf_found found;
	ssize_t size;

	while ((size = read(fd, &found, sizeof(found))) == sizeof(found))
		each(context, &found);
	return size < 0 ? error_set(-errno, "can not look at the VMM's files by BPF: %s", strerror(errno))
			: 0;
}

/* Runs the iterator over the files of the process of PID_FD. */
static int look(int pid_fd, void (*each)(void *context, const struct bpf_found *found), void *context)
{
	union bpf_iter_link_info which = { .task.pid_fd = (__u32)pid_fd };
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &which, .link_info_len = sizeof(which));
	struct bpf_link *link = bpf_program__attach_iter(shared.programs->progs.find, &options);
	int fd, error;

	if (!link)
		return error_set(errno == ESRCH ? -ESRCH : -ENOTSUP,
				 "the kernel does not iterate over a process's files: %s", strerror(errno));
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0) {
		error = error_set(-errno, "can not look at the VMM's files by BPF: %s", strerror(errno));
	} else {
		error = read_found(fd, each, context);
		close(fd);
	}
	bpf_link__destroy(link);
	return error;
}

bool bpf_programs_are_intel(void)
{
	return shared.rip_events;
}

/* One at a time, for slot_size_min: the kernel waits for no VMM meanwhile. */
int bpf_programs_look(int pid_fd, uint64_t slot_size_min,
		      void (*each)(void *context, const struct bpf_found *found), void *context)
{
	int error;

	pthread_mutex_lock(&shared.lock);
	shared.programs->bss->slot_size_min = slot_size_min;
	error = look(pid_fd, each, context);
	pthread_mutex_unlock(&shared.lock);
	return error;
}
