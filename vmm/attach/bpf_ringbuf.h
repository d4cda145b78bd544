/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's side of the ring with one vCPU's samples (docs/ring-format.md, "The ring of a BPF
 * program"). The BPF program writes it in interrupts of the vCPU's thread: one writer, one reader,
 * and neither waits for the other. Records are contiguous. One thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_BPF_RINGBUF_H
#define KVMSCOPE_ATTACH_BPF_RINGBUF_H

#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"

struct bpf_ring {
	struct bpf_vcpu *vcpu; /* shared with the program */
	const uint8_t *chunks; /* vcpu->chunks of BPF_CHUNK bytes */
	uint64_t lost;         /* already reported */
};

/* The current end of the samples. Reading up to there terminates, however fast samples arrive. */
uint64_t bpf_ring_end(const struct bpf_ring *ring);

/* The oldest sample before END, valid until it is released; NULL: none. */
const struct bpf_whole_sample *bpf_ring_first(const struct bpf_ring *ring, uint64_t end);

/* Releases SAMPLE, the oldest one. */
void bpf_ring_release(struct bpf_ring *ring, const struct bpf_whole_sample *sample);

/* Requests the bell for the next sample, once. Poll again afterwards: samples may have come
 * before. */
void bpf_ring_wait(struct bpf_ring *ring);

/* Samples lost since the last call. */
uint64_t bpf_ring_consume_lost(struct bpf_ring *ring);

#endif
