/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring that the samples of one vCPU come through, as its reader has it (docs/ring-format.md,
 * "The ring of a BPF program"). The BPF program writes it in interrupts of the vCPU's thread, so
 * there is one writer and one reader, and neither waits for the other. A record lies in one piece.
 *
 * One thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_BPF_RINGBUF_H
#define KVMSCOPE_ATTACH_BPF_RINGBUF_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"

struct bpf_ring {
	struct bpf_vcpu *vcpu; /* shared with the program */
	const uint8_t *chunks; /* vcpu->chunks of BPF_CHUNK bytes */
	uint64_t lost;         /* that were told */
};

/* Where the samples end that are there now: who reads up to there comes to an end, however fast
 * they come. */
uint64_t bpf_ring_end(const struct bpf_ring *ring);

/* The oldest sample before END that is not released; NULL: there is none. As long as it is not
 * released, it stays. */
const struct bpf_whole_sample *bpf_ring_first(const struct bpf_ring *ring, uint64_t end);

/* SAMPLE, which is the first, is not needed any more. */
void bpf_ring_release(struct bpf_ring *ring, const struct bpf_whole_sample *sample);

/* From now on the next sample rings the VM's bell, once. Samples may have come before: look again.
 */
void bpf_ring_wait(struct bpf_ring *ring);

/* Samples that were lost since the last time. */
uint64_t bpf_ring_consume_lost(struct bpf_ring *ring);

#endif
