/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/machine.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/thread_check.h"
#include "shared/thread_start.h"
#include "vmm/boot/acpi.h"
#include "vmm/kvm/reset_state.h"
#include "vmm/machine/board.h"

struct vcpu_thread {
	struct machine *machine;
	struct vcpu *vcpu;
	pthread_t thread;
};

struct machine {
	struct thread_check main; /* the thread of all functions but those named in machine.h */
	struct vm vm;
	struct board board;
	struct machine_hooks hooks;
	struct vcpu_handlers handlers;
	struct machine_options options;  /* a copy */
	struct reset_state *reset_state; /* NULL: the machine cannot be reset */
	struct boot_start start;
	struct vcpu_thread threads[VM_CPUS_MAX];
	unsigned int thread_count; /* started and not joined */
	int end_fd;

	atomic_bool stopped;  /* machine_stop() was called; survives a reset */
	pthread_mutex_t lock; /* protects the members below */
	bool ended;           /* result is final, except for debug_exit_value */
	struct machine_result result;
};

/* Stores the result and stops the other vCPUs; only the first call counts. Any thread. */
static void end_machine(struct machine *machine, enum vcpu_end end, const char *message)
{
	bool first;

	pthread_mutex_lock(&machine->lock);
	first = !machine->ended;
	if (first) {
		machine->ended = true;
		machine->result.end = end;
		memccpy(machine->result.message, message, '\0', sizeof(machine->result.message));
	}
	pthread_mutex_unlock(&machine->lock);
	if (!first)
		return;
	for (unsigned int i = 0; i < machine->vm.vcpu_count; i++)
		vcpu_stop(machine->vm.vcpus[i]);
	eventfd_write(machine->end_fd, 1);
}

static void *run_vcpu_thread(void *argument)
{
	struct vcpu_thread *self = argument;
	struct machine *machine = self->machine;
	enum vcpu_end end;
	bool is_error;

	if (machine->hooks.vcpu_start)
		machine->hooks.vcpu_start(machine->hooks.context, self->vcpu);
	end = vcpu_run(self->vcpu);
	is_error = end == VCPU_END_SHUTDOWN || end == VCPU_END_INTERNAL_ERROR ||
		   end == VCPU_END_HOST_ERROR;
	if (machine->hooks.vcpu_end)
		machine->hooks.vcpu_end(machine->hooks.context, self->vcpu);
	end_machine(machine, end, is_error ? error_message() : "");
	return NULL;
}

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	struct machine *machine = context;

	bus_dispatch(&machine->board.bus, BUS_PORT, port, write, data, size);
}

static void on_mmio(void *context, struct vcpu *vcpu, uint64_t gpa, bool write, void *data,
		    unsigned int size)
{
	struct machine *machine = context;

	bus_dispatch(&machine->board.bus, BUS_MMIO, gpa, write, data, size);
}

static void on_sample(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;

	machine->hooks.sample(machine->hooks.context, vcpu);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;

	machine->hooks.kicked(machine->hooks.context, vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	struct machine *machine = context;

	machine->hooks.debug(machine->hooks.context, vcpu);
}

static void on_power_off(void *context)
{
	vcpu_request_end(vcpu_current(), VCPU_END_POWER_OFF);
}

static void on_reset(void *context)
{
	vcpu_request_end(vcpu_current(), VCPU_END_RESET);
}

static void on_debug_exit(void *context, uint32_t value)
{
	struct machine *machine = context;

	pthread_mutex_lock(&machine->lock);
	if (!machine->ended)
		machine->result.debug_exit_value = value;
	pthread_mutex_unlock(&machine->lock);
	vcpu_request_end(vcpu_current(), VCPU_END_DEBUG_EXIT);
}

static int create_vcpus(struct machine *machine, unsigned int cpus)
{
	int error = 0;

	if (cpus < 1 || cpus > VM_CPUS_MAX)
		return error_set(-EINVAL, "cannot create %u vCPUs: the range is 1 to %d", cpus,
				 VM_CPUS_MAX);
	machine->vm.cpus = cpus;
	for (unsigned int i = 0; i < cpus && !error; i++)
		error = vcpu_create(&machine->vm, i, &machine->handlers);
	return error;
}

#define CODE_SELECTOR 0x10
#define DATA_SELECTOR 0x18

/* SDM vol. 3A 2.5 and 2.2.1. */
#define CR0_PE   (1ull << 0)
#define CR0_ET   (1ull << 4)
#define CR0_NE   (1ull << 5)
#define CR0_PG   (1ull << 31)
#define CR4_PAE  (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)

#define RFLAGS_RESERVED 2ull

static struct kvm_segment flat_segment(uint16_t selector, bool code, bool long_mode)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = selector,
		.type = code ? 11 : 3, /* accessed; execute/read or read/write */
		.present = 1,
		.s = 1,
		.l = code && long_mode,
		.db = !(code && long_mode),
		.g = 1,
	};
}

static void set_segments(struct kvm_sregs *sregs, const struct boot_start *start)
{
	struct kvm_segment data = flat_segment(DATA_SELECTOR, false, start->long_mode);

	sregs->cs = flat_segment(CODE_SELECTOR, true, start->long_mode);
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->gdt.base = start->gdt;
	sregs->gdt.limit = start->gdt_size - 1;
	/* No IDT: an exception before the kernel sets its own is a triple fault, which is
	 * reported. */
	sregs->idt.base = 0;
	sregs->idt.limit = 0;
}

static void set_mode(struct kvm_sregs *sregs, const struct boot_start *start)
{
	sregs->cr0 = CR0_PE | CR0_ET | CR0_NE;
	sregs->cr4 = 0;
	sregs->efer = 0;
	if (!start->long_mode)
		return;
	sregs->cr3 = start->cr3;
	sregs->cr4 = CR4_PAE;
	sregs->cr0 |= CR0_PG;
	sregs->efer = EFER_LME | EFER_LMA;
}

/* Sets all registers of VCPU, which has not run, as the boot protocol requires. */
static int set_start_state(struct vcpu *vcpu, const struct boot_start *start)
{
	struct kvm_sregs sregs = *vcpu_special_registers(vcpu);
	struct kvm_regs regs = {
		.rip = start->rip,
		.rsp = start->rsp,
		.rsi = start->rsi,
		.rbx = start->rbx,
		.rax = start->rax,
		.rflags = RFLAGS_RESERVED,
	};
	int error;

	set_segments(&sregs, start);
	set_mode(&sregs, start);
	error = vcpu_set_special_registers(vcpu, &sregs);
	return error ? error : vcpu_set_registers(vcpu, &regs);
}

static int load_kernel(struct machine *machine, const struct machine_options *options)
{
	struct acpi_options acpi = {
		.cpus = options->cpus,
		.virtio = machine->board.virtio_slots,
		.virtio_count = machine->board.virtio_count,
	};
	struct boot_options boot = options->boot;
	int error;

	boot.cpus = options->cpus;
	error = acpi_build(&acpi, &machine->vm.memory, &boot.rsdp);
	if (!error)
		error = boot_load(&boot, &machine->vm.memory, &machine->start);
	return error ? error : set_start_state(machine->vm.vcpus[0], &machine->start);
}

static int build(struct machine *machine, const struct machine_options *options)
{
	struct board_events events = { .power_off = on_power_off,
				       .reset = on_reset,
				       .debug_exit = on_debug_exit,
				       .context = machine,
				       .panic = options->panic,
				       .panic_context = options->panic_context };
	int error;

	machine->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (machine->end_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %m");
	error = vm_create(&machine->vm, options->memory_size);
	machine->vm.nested = options->nested;
	if (!error)
		error = create_vcpus(machine, options->cpus);
	if (!error && options->resets)
		error = reset_state_save(&machine->reset_state, &machine->vm);
	if (!error)
		error = board_create(&machine->board, &machine->vm, options, &events);
	return error ? error : load_kernel(machine, options);
}

int machine_create(struct machine **machine, const struct machine_options *options)
{
	struct machine *made = calloc(1, sizeof(*made));
	int error;

	*machine = NULL;
	if (!made)
		return error_set(-ENOMEM, "no memory for the machine");
	made->vm.kvm_fd = made->vm.vm_fd = made->end_fd = -1;
	made->hooks = options->hooks;
	made->options = *options;
	made->handlers = (struct vcpu_handlers){ .io = on_io,
						 .mmio = on_mmio,
						 .context = made,
						 .sample = options->hooks.sample ? on_sample : NULL,
						 .kicked = options->hooks.kicked ? on_kicked : NULL,
						 .debug = options->hooks.debug ? on_debug : NULL,
						 .pmu = options->pmu };
	pthread_mutex_init(&made->lock, NULL);
	error = build(made, options);
	if (error)
		machine_destroy(made);
	else
		*machine = made;
	return error;
}

int machine_reset(struct machine *machine)
{
	const struct vcpu_pmu_operations *pmu = machine->handlers.pmu;
	eventfd_t count;
	int error;

	THREAD_CHECK(&machine->main);
	assert(!machine->thread_count);
	if (!machine->reset_state)
		return error_set(-ENOTSUP, "this machine cannot be reset");
	board_reset(&machine->board);
	error = reset_state_restore(machine->reset_state, &machine->vm);
	if (error)
		return error;
	for (unsigned int i = 0; pmu && pmu->reset && i < machine->vm.vcpu_count; i++)
		pmu->reset(machine->vm.vcpus[i]);
	memory_clear(&machine->vm.memory);
	error = load_kernel(machine, &machine->options);
	if (error)
		return error;
	/* Cleared first: a machine_stop() from now on ends the next boot. */
	eventfd_read(machine->end_fd, &count);
	pthread_mutex_lock(&machine->lock);
	machine->ended = false;
	machine->result = (struct machine_result){ 0 };
	pthread_mutex_unlock(&machine->lock);
	return 0;
}

static int start_threads(struct machine *machine)
{
	for (unsigned int i = 0; i < machine->vm.vcpu_count; i++) {
		struct vcpu_thread *thread = &machine->threads[i];
		char name[16];
		int error;

		*thread = (struct vcpu_thread){ .machine = machine, .vcpu = machine->vm.vcpus[i] };
		snprintf(name, sizeof(name), "vCPU %u", i);
		error = thread_start(&thread->thread, name, run_vcpu_thread, thread);
		if (error)
			return error_set(error, "cannot start the thread of vCPU %u: %s", i,
					 strerror(-error));
		machine->thread_count++;
	}
	return 0;
}

static void join_threads(struct machine *machine)
{
	while (machine->thread_count)
		pthread_join(machine->threads[--machine->thread_count].thread, NULL);
}

int machine_start(struct machine *machine)
{
	int error;

	THREAD_CHECK(&machine->main);
	assert(!machine->thread_count);
	error = start_threads(machine);
	if (error) {
		machine_stop(machine);
		join_threads(machine);
	} else if (atomic_load(&machine->stopped)) {
		end_machine(machine, VCPU_END_STOPPED, ""); /* stopped during a reset */
	}
	return error;
}

int machine_end_fd(const struct machine *machine)
{
	return machine->end_fd;
}

void machine_wait(struct machine *machine, struct machine_result *result)
{
	struct pollfd end = { .fd = machine->end_fd, .events = POLLIN };

	THREAD_CHECK(&machine->main);
	while (poll(&end, 1, -1) < 0 && errno == EINTR)
		;
	join_threads(machine);
	pthread_mutex_lock(&machine->lock);
	*result = machine->result;
	pthread_mutex_unlock(&machine->lock);
}

void machine_stop(struct machine *machine)
{
	atomic_store(&machine->stopped, true);
	end_machine(machine, VCPU_END_STOPPED, "");
}

bool machine_power_button(struct machine *machine)
{
	return acpi_pm_press_power_button(&machine->board.acpi_pm);
}

struct vm *machine_vm(struct machine *machine)
{
	return &machine->vm;
}

const struct boot_start *machine_boot_start(const struct machine *machine)
{
	return &machine->start;
}

void machine_destroy(struct machine *machine)
{
	if (!machine)
		return;
	if (machine->thread_count)
		machine_stop(machine);
	join_threads(machine);
	board_destroy(&machine->board);
	reset_state_free(machine->reset_state);
	vm_destroy(&machine->vm);
	if (machine->end_fd >= 0)
		close(machine->end_fd);
	pthread_mutex_destroy(&machine->lock);
	free(machine);
}
