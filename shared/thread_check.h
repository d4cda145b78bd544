/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread may call a function, written as code. A structure that belongs to one thread has a
 * `struct thread_check`; each function that needs that thread begins with
 * THREAD_CHECK(&it->thread). All zeroes is a check that no thread has used: the first use binds it.
 *
 *	thread_check_release()	before another thread takes over, e.g. after pthread_join()
 *
 * No lock, allocation or system call: allowed on the sample path.
 */
#ifndef KVMSCOPE_SHARED_THREAD_CHECK_H
#define KVMSCOPE_SHARED_THREAD_CHECK_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct thread_check {
	uintptr_t owner; /* pthread_self() of the thread that uses it; 0: none yet */
};

/* Binds CHECK to the calling thread if it is unbound; false if it belongs to another one. */
static inline bool thread_check_passes(struct thread_check *check)
{
	uintptr_t self = (uintptr_t)pthread_self(), none = 0;

	return __atomic_load_n(&check->owner, __ATOMIC_RELAXED) == self ||
	       __atomic_compare_exchange_n(&check->owner, &none, self, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

static inline void thread_check_release(struct thread_check *check)
{
	__atomic_store_n(&check->owner, 0, __ATOMIC_RELAXED);
}

#define THREAD_CHECK(check) assert(thread_check_passes(check))

#endif
