/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#ifndef KVMSCOPE_ATTACH_BPF_VERIFIED_ONCE_H
#define KVMSCOPE_ATTACH_BPF_VERIFIED_ONCE_H

/*
 * Marks a function that the verifier checks once, with unknown arguments, instead of at each call:
 * a global function. Its pointer arguments may be NULL then, and each points to a type of known
 * size.
 */
#ifdef __bpf__
#define VERIFIED_ONCE __noinline
#else
#define VERIFIED_ONCE static __noinline
#endif

#endif
