/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of a hit's sample: our own guest on the local KVM has known registers at each hit.
 */
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/debug/watches.h"
#include "vmm/sample/sampler.h"
#include "vmm/sample/vm_view.h"

#define ROUNDS 200
#define LOOP   (BARE_GUEST_CODE + 5)

/* mov ecx, ROUNDS; 1: nop; lea r15d, [rcx+rcx]; dec ecx; jnz 1b; mov edx, 0xf4; out dx, eax; hlt */
static const uint8_t code[] = { 0xb9, ROUNDS, 0,    0,    0,    0x90, 0x44, 0x8d, 0x3c, 0x09, 0xff,
				0xc9, 0x75,   0xf7, 0xba, 0xf4, 0,    0,    0,    0xef, 0xf4 };

struct setting {
	struct watches *watches;
	struct sampler *sampler;
	struct ring *ring;
	struct vm vm;
	struct vm_view view;
	struct vcpu_handlers handlers;
};

static void on_io(void *context, struct vcpu *vcpu, uint16_t port, bool write, void *data,
		  unsigned int size)
{
	if (write && port == 0xf4)
		vcpu_request_end(vcpu, VCPU_END_DEBUG_EXIT);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct setting *setting = context;

	watch_kicked(setting->watches, vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	struct setting *setting = context;

	watch_debug(setting->watches, vcpu);
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	struct setting *setting = context;

	sampler_record_hit(setting->sampler, vcpu,
			   &(struct sampler_hit){ .event = 1,
						  .address = hit->address,
						  .period = hit->period,
						  .hits = hit->hits });
}

static bool start(struct setting *setting)
{
	struct watches_options watches = { .vcpus = 1, .hit = on_hit, .context = setting };
	struct sampler_options sampler = { .rings = &setting->ring,
					   .vcpus = 1,
					   .view = &setting->view.view,
					   .frequency = 1,
					   .callchains = true,
					   .paused = true };

	*setting = (struct setting){ .handlers = { .io = on_io,
						   .kicked = on_kicked,
						   .debug = on_debug,
						   .context = setting } };
	if (bare_guest_create(&setting->vm, &setting->handlers, code, sizeof(code), 0))
		return false;
	vm_view_init(&setting->view, &setting->vm.memory);
	return !ring_create_with(
		       &setting->ring,
		       &(struct ring_options){ .size = 1u << 20, .mode = RING_MODE_CONSUMER }) &&
	       !watches_create(&setting->watches, &watches) &&
	       !sampler_create(&setting->sampler, &sampler);
}

static void run(struct setting *setting)
{
	struct vcpu *vcpu = setting->vm.vcpus[0];

	CHECK_EQUAL(sampler_attach(setting->sampler, vcpu), 0);
	CHECK_EQUAL(watch_enter(setting->watches, vcpu), 0);
	CHECK_EQUAL(vcpu_run(vcpu), VCPU_END_DEBUG_EXIT);
	watch_leave(setting->watches, vcpu);
	sampler_detach(setting->sampler, vcpu);
}

/* Before the round's NOP: the counter, and in R15 twice its value in the previous round. */
static void check_hit(const struct sample *sample, uint64_t number)
{
	const struct sample_hit *hit = sample_hit(sample);

	CHECK_EQUAL(sample->event, 1);
	CHECK_EQUAL(sample->rip, LOOP);
	CHECK_EQUAL(sample->period, 5);
	CHECK_EQUAL(hit->address, LOOP);
	CHECK_EQUAL(hit->hits, number);
	CHECK_EQUAL(hit->registers[SAMPLE_RCX], ROUNDS + 1 - number);
	CHECK_EQUAL(hit->registers[SAMPLE_R15], 2 * (ROUNDS + 2 - number));
	CHECK_EQUAL(hit->flags, 0);
}

TEST(watch_sample, has_the_registers_and_the_number_of_the_hit)
{
	const struct watch_request request = { .kind = BREAKPOINT_EXECUTE,
					       .length = 1,
					       .pinned = true,
					       .vcpu = ARBITER_ALL_VCPUS,
					       .period = 5 };
	const struct ring_record *record;
	struct setting setting;
	uint64_t samples = 0;

	BARE_GUEST_REQUIRED();
	REQUIRE(start(&setting));
	CHECK_EQUAL(watch_add(setting.watches, &request), 0);
	CHECK_EQUAL(watch_arm(setting.watches, 0, LOOP), 0);
	run(&setting);
	while ((record = ring_read(setting.ring)))
		if (record->type == RECORD_SAMPLE)
			check_hit((const struct sample *)record->payload, 5 * ++samples);
	CHECK_EQUAL(samples, ROUNDS / 5);
	sampler_destroy(setting.sampler);
	watches_destroy(setting.watches);
	ring_destroy(setting.ring);
	vm_destroy(&setting.vm);
}
