/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that are atomic against signal handlers of the same thread, but
 * not against other threads that update the same word (they may read it):
 * what local_t and local_cmpxchg() are in the kernel. On x86-64 one
 * instruction without LOCK, which costs a fifth of one with it; a thread that
 * is moved to another CPU in between is fine. Stores are seen in program
 * order by other CPUs (SDM vol. 3A 9.2.2), so each also releases.
 */
#ifndef KVMSCOPE_SHARED_LOCAL_ATOMIC_H
#define KVMSCOPE_SHARED_LOCAL_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

/* Neither ThreadSanitizer nor tests/ring, which uses its hooks, sees into assembly. */
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

/*
 * A reader that copies what a writer may overwrite, and looks afterwards
 * whether it did, needs the copy's loads before that look, and the writer its
 * announcement before the stores that follow. Neither is a matter for x86
 * (SDM vol. 3A 9.2.2: loads stay in order among themselves, and so do stores),
 * only for the compiler.
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

/* For words of another thread. */
static inline uint64_t load_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store_release(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* For words that several threads change. */
static inline void shared_set_bits(uint64_t *word, uint64_t bits)
{
	__atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

static inline void shared_clear_bits(uint64_t *word, uint64_t bits)
{
	__atomic_fetch_and(word, ~bits, __ATOMIC_SEQ_CST);
}

/*
 * Between a store and a load of another word. If another thread stores the
 * latter and loads the former, with this in between too, at least one of the
 * two sees the other's store (SDM vol. 3A 9.2.3.9).
 */
static inline void full_barrier(void)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("mfence" : : : "memory");
#elif defined(__x86_64__)
	/* ThreadSanitizer knows no fences; a locked instruction is one too. */
	uint64_t word = 0;

	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A hint. Compilers have it only where they may take for granted that the CPU knows it. */
static inline void prefetch_to_write(const void *address)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("prefetchw (%0)" : : "r"(address));
#endif
}

/* Stores DESIRED if *WORD is *EXPECTED; else false, and *EXPECTED is what was there. */
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

/* Adds VALUE and returns what was there before. */
static inline uint64_t local_fetch_add(uint64_t *word, uint64_t value)
{
#if LOCAL_ATOMIC_ASSEMBLY
	__asm__ volatile("xaddq %1, %0" : "+m"(*word), "+r"(value) : : "memory", "cc");
	return value;
#else
	return __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

/* Takes what is there and leaves zero. */
static inline uint64_t local_take(uint64_t *word)
{
	uint64_t value = local_load(word);

	while (!local_compare_exchange(word, &value, 0))
		;
	return value;
}

/* Moves WORD, where FOUND was, up to VALUE, unless a handler got further meanwhile. */
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
