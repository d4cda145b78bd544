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

/* ThreadSanitizer does not see into assembly. */
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
	uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (!local_compare_exchange(word, &value, 0))
		;
	return value;
}

#endif
