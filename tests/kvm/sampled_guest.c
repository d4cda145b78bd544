/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/sampled_guest.h"

#include <asm/kvm_para.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/kvm/msr.h"

#define RING_SIZE (8ul << 20)

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (!write)
		memset(data, 0xff, size);
	else if (port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_mmio(void *context, struct vcpu *vcpu, uint64_t gpa, bool write, void *data,
		    unsigned int size)
{
	if (!write)
		memset(data, 0xff, size);
}

static void on_sample(void *context, struct vcpu *vcpu)
{
	struct sampled_guest *guest = context;

	sampler_record(guest->sampler, vcpu);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct sampled_guest *guest = context;

	sampler_kicked(guest->sampler, vcpu);
}

static uint64_t time_of(clockid_t clock)
{
	struct timespec time = { 0 };

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void *run_cpu(void *argument)
{
	struct sampled_cpu *cpu = argument;
	struct sampled_guest *guest = cpu->guest;

	cpu->error = guest->sampler ? sampler_attach(guest->sampler, cpu->vcpu) : 0;
	if (cpu->error)
		return NULL;
	cpu->end = vcpu_run(cpu->vcpu);
	cpu->cpu_time = time_of(CLOCK_THREAD_CPUTIME_ID);
	if (guest->sampler)
		sampler_detach(guest->sampler, cpu->vcpu);
	return NULL;
}

/* All vCPUs but the first wait for a SIPI by default; here they start like the first. */
static int add_cpu(struct sampled_guest *guest, unsigned int index)
{
	struct kvm_mp_state runnable = { .mp_state = KVM_MP_STATE_RUNNABLE };
	const struct vcpu *first = guest->vm.vcpus[0];
	int error = vcpu_create(&guest->vm, index, &guest->handlers);
	struct vcpu *vcpu;

	if (error)
		return error;
	vcpu = guest->vm.vcpus[index];
	error = vcpu_set_special_registers(vcpu, &first->run->s.regs.sregs);
	if (!error)
		error = vcpu_set_registers(vcpu, &first->run->s.regs.regs);
	if (!error && ioctl(vcpu->fd, KVM_SET_MP_STATE, &runnable))
		error = -errno;
	return error;
}

static int make_sampler(struct sampled_guest *guest, const struct sampled_guest_options *options)
{
	struct sampler_options sampler = {
		.rings = guest->rings,
		.vcpus = options->cpus,
		.view = &guest->view.view,
		.clock = options->clock,
		.frequency = options->frequency,
		.callchains = true,
		.paused = options->paused,
	};
	const struct ring_options ring = { .size = RING_SIZE, .mode = options->mode };
	int error = 0;

	if (!options->frequency)
		return 0;
	vm_view_init(&guest->view, &guest->vm.memory);
	for (unsigned int i = 0; i < options->cpus && !error; i++)
		error = ring_create_with(&guest->rings[i], &ring);
	return error ? error : sampler_create(&guest->sampler, &sampler);
}

static int make(struct sampled_guest *guest, const struct sampled_guest_options *options)
{
	int error = 0;

	guest->vm.cpus = options->cpus;
	for (unsigned int i = 1; i < options->cpus && !error; i++)
		error = add_cpu(guest, i);
	if (!error && options->clock_address)
		error = msr_set(guest->vm.vcpus[0]->fd, MSR_KVM_SYSTEM_TIME_NEW,
				options->clock_address);
	return error ? error : make_sampler(guest, options);
}

int sampled_guest_start(struct sampled_guest *guest, const struct sampled_guest_options *options)
{
	int error;

	memset(guest, 0, sizeof(*guest));
	guest->handlers = (struct vcpu_handlers){ .io = on_io,
						  .mmio = on_mmio,
						  .context = guest,
						  .sample = options->frequency ? on_sample : NULL,
						  .kicked = options->frequency ? on_kicked : NULL };
	error = bare_guest_create(&guest->vm, &guest->handlers, options->code, options->size,
				  options->cpl);
	if (error)
		return error;
	error = make(guest, options);
	if (error) {
		sampled_guest_free(guest);
		return error;
	}
	for (; guest->cpu_count < options->cpus; guest->cpu_count++) {
		struct sampled_cpu *cpu = &guest->cpus[guest->cpu_count];

		cpu->guest = guest;
		cpu->vcpu = guest->vm.vcpus[guest->cpu_count];
		pthread_create(&cpu->thread, NULL, run_cpu, cpu);
	}
	return 0;
}

static uint64_t used(const struct sampled_guest *guest)
{
	uint64_t sum = 0;
	clockid_t clock;

	for (unsigned int i = 0; i < guest->cpu_count; i++)
		if (!pthread_getcpuclockid(guest->cpus[i].thread, &clock))
			sum += time_of(clock);
	return sum;
}

void sampled_guest_use(struct sampled_guest *guest, uint64_t cpu_time)
{
	while (used(guest) < cpu_time)
		usleep(5000);
}

int sampled_guest_set_frequency(struct sampled_guest *guest, unsigned int frequency)
{
	int error = sampler_set_frequency(guest->sampler, frequency);

	for (unsigned int i = 0; i < guest->cpu_count; i++)
		vcpu_kick(guest->cpus[i].vcpu);
	return error;
}

void sampled_guest_stop(struct sampled_guest *guest)
{
	for (unsigned int i = 0; i < guest->cpu_count; i++)
		vcpu_stop(guest->cpus[i].vcpu);
	for (unsigned int i = 0; i < guest->cpu_count; i++)
		pthread_join(guest->cpus[i].thread, NULL);
	guest->cpu_count = 0;
}

void sampled_guest_free(struct sampled_guest *guest)
{
	sampled_guest_stop(guest);
	sampler_destroy(guest->sampler);
	for (unsigned int i = 0; i < SAMPLED_CPUS_MAX; i++)
		ring_destroy(guest->rings[i]);
	vm_destroy(&guest->vm);
}
