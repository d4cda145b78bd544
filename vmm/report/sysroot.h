/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory in which hotspot (perfparser of hotspot 1.3) finds the symbols of a recording:
 *
 *	DIR/proc/kallsyms					kernel and modules, as recorded
 *	DIR/usr/lib/debug/[kernel.kallsyms]/ID/kallsyms		the same file
 *	DIR/PATH						programs and libraries
 *	DIR/usr/lib/debug/.build-id/xx/yyyy.debug		their separate symbols
 *
 * perfparser adds no difference of addresses to a kallsyms file, and takes the one in the build-id
 * cache unless DIR/usr/lib/debug has one.
 */
#ifndef KVMSCOPE_REPORT_SYSROOT_H
#define KVMSCOPE_REPORT_SYSROOT_H

#include <stddef.h>

#include "vmm/report/profile_stacks.h"

struct sysroot_counts {
	size_t found;    /* kernels, programs and libraries in the directory */
	size_t missing;  /* those with samples but without symbols here */
	size_t replaced; /* files that had several builds, of which none is in the directory */
};

/* Fills DIRECTORY, which is created, or must be empty. -ENOTEMPTY: it has files; the errors of
 * profile_load() and of writing. One thread at a time. */
int sysroot_write(const struct profile_options *options, const char *directory,
		  struct sysroot_counts *counts);

#endif
