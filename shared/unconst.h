/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a pointer loses its const or volatile. */
#ifndef KVMSCOPE_SHARED_UNCONST_H
#define KVMSCOPE_SHARED_UNCONST_H

#include <stdint.h>

/*
 * POINTER without its qualifiers: for memory that is owned through a pointer to const and freed,
 * and for C interfaces that take a plain pointer but do not write, like execv() or protobuf-c.
 */
static inline void *unconst(const volatile void *pointer)
{
	return (void *)(uintptr_t)pointer;
}

#endif
