/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#ifndef KVMSCOPE_ATTACH_BPF_VERIFIED_ONCE_H
#define KVMSCOPE_ATTACH_BPF_VERIFIED_ONCE_H

/*
 * A function that the verifier follows once, for whatever arguments, and not anew at each call: one
 * that is not static. Its pointers may be NULL then, and each is of a type whose size is known.
 */
#ifdef __bpf__
#define VERIFIED_ONCE __noinline
#else
#define VERIFIED_ONCE static __noinline
#endif

#endif
