/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/vcpu_snapshot.h"

#include <sched.h>
#include <string.h>

/* Words are stored with release and loaded with acquire ordering: a reader that sees a new word
 * also sees the odd sequence before it. */
void snapshot_write(struct snapshot *snapshot, const struct guest_registers *registers)
{
	uint64_t words[SNAPSHOT_WORDS] = { 0 };
	uint64_t sequence = __atomic_load_n(&snapshot->sequence, __ATOMIC_RELAXED);

	memcpy(words, registers, sizeof(*registers));
	__atomic_store_n(&snapshot->sequence, sequence + 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < SNAPSHOT_WORDS; i++)
		__atomic_store_n(&snapshot->words[i], words[i], __ATOMIC_RELEASE);
	__atomic_store_n(&snapshot->sequence, sequence + 2, __ATOMIC_RELEASE);
}

static bool try_read(const struct snapshot *snapshot, uint64_t sequence, uint64_t *words)
{
	for (size_t i = 0; i < SNAPSHOT_WORDS; i++)
		words[i] = __atomic_load_n(&snapshot->words[i], __ATOMIC_ACQUIRE);
	return __atomic_load_n(&snapshot->sequence, __ATOMIC_RELAXED) == sequence;
}

bool snapshot_read(const struct snapshot *snapshot, struct guest_registers *registers)
{
	uint64_t words[SNAPSHOT_WORDS], sequence;

	for (;;) {
		sequence = __atomic_load_n(&snapshot->sequence, __ATOMIC_ACQUIRE);
		if (!sequence)
			return false;
		if (sequence % 2 == 0 && try_read(snapshot, sequence, words))
			break;
		sched_yield();
	}
	memcpy(registers, words, sizeof(*registers));
	return true;
}
