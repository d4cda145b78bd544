/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that are atomic with respect to signal handlers of the same thread, but not to other
 * threads that update the same word (they may read it), like local_t and local_cmpxchg() in the
 * kernel. On x86-64 each is one instruction without LOCK, at a fifth of the cost; migration of the
 * thread to another CPU is harmless. Other CPUs see stores in program order (SDM vol. 3A 9.2.2), so
 * each is also a release.
 */
#ifndef KVMSCOPE_SHARED_LOCAL_ATOMIC_H
#define KVMSCOPE_SHARED_LOCAL_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

/* ThreadSanitizer, and tests/ring, which uses its hooks, cannot see assembly. */
#if defined(__SANITIZE_THREAD__)
#define LOCAL_ATOMIC_ASSEMBLY 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCAL_ATOMIC_ASSEMBLY 0
#endif
#endif
#ifndef LOCAL_ATOMIC_ASSEMBLY
#ifdef __x86_64__
#define LOCAL_ATOMIC_ASSEMBLY 1
#else
#define LOCAL_ATOMIC_ASSEMBLY 0
#endif
#endif

/* Orders loads before later loads, and stores before later stores: a reader must copy before it
 * checks for an overwrite, and the writer must announce before it overwrites. On x86 only the
 * compiler could reorder these (SDM vol. 3A 9.2.2).
 */
static inline void local_keep_order(void)
{
#ifdef __x86_64__
	__asm__ volatile("" : : : "memory");
#else
	__atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}

static inline uint64_t local_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void local_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* For words that another thread updates. */
static inline uint64_t load_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store_release(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* For words that several threads update. */
static inline void shared_set_bits(uint64_t *word, uint64_t bits)
{
	__atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

static inline void shared_clear_bits(uint64_t *word, uint64_t bits)
{
	__atomic_fetch_and(word, ~bits, __ATOMIC_SEQ_CST);
}

/* Orders a store before a load of another word. If another thread stores the latter word and loads
 * the former with this barrier in between, at least one of them sees the other's store (SDM vol.
 * 3A 9.2.3.9).
 */
static inline void full_barrier(void)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("mfence" : : : "memory");
#elif defined(__x86_64__)
	/* ThreadSanitizer does not support fences; a locked instruction is one as well. */
	uint64_t word = 0;

	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A hint. Assembly, because compilers emit it only for CPUs that are known to support it. */
static inline void prefetch_to_write(const void *address)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("prefetchw (%0)" : : "r"(address));
#endif
}

/* Stores DESIRED if *WORD is *EXPECTED; else returns false with the current value in *EXPECTED. */
static inline bool local_compare_exchange(uint64_t *word, uint64_t *expected, uint64_t desired)
{
#if LOCAL_ATOMIC_ASSEMBLY
	bool done;

	__asm__ volatile("cmpxchgq %3, %1"
			 : "=@ccz"(done), "+m"(*word), "+a"(*expected)
			 : "r"(desired)
			 : "memory");
	return done;
#else
	return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_RELEASE,
					   __ATOMIC_RELAXED);
#endif
}

static inline void local_add(uint64_t *word, uint64_t value)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("addq %1, %0" : "+m"(*word) : "er"(value) : "memory", "cc");
#else
	__atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

/* Adds VALUE and returns the previous value. */
static inline uint64_t local_fetch_add(uint64_t *word, uint64_t value)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("xaddq %1, %0" : "+m"(*word), "+r"(value) : : "memory", "cc");
	return value;
#else
	return __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

/* Sets *WORD to zero and returns the previous value. */
static inline uint64_t local_take(uint64_t *word)
{
	uint64_t value = local_load(word);

	while (!local_compare_exchange(word, &value, 0))
		;
	return value;
}

/* Raises *WORD, which was FOUND, to VALUE, unless a handler raised it further. */
static inline void local_raise_from(uint64_t *word, uint64_t found, uint64_t value)
{
	while (found < value && !local_compare_exchange(word, &found, value))
		;
}

static inline void local_raise(uint64_t *word, uint64_t value)
{
	local_raise_from(word, local_load(word), value);
}

#endif
