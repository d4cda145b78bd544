/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a profile for Firefox Profiler (profiler.firefox.com): its processed profile format,
 * version 56 (docs-developer/CHANGELOG-formats.md of firefox-devtools/profiler). */
#ifndef KVMSCOPE_REPORT_FIREFOX_H
#define KVMSCOPE_REPORT_FIREFOX_H

#include <stdio.h>

#include "vmm/report/profile_stacks.h"

/*
 * Writes the only event of PROFILE, which has its samples kept: one thread per vCPU. The outermost
 * frames are the program and, if it has a name of its own, the thread. Categories: guest user,
 * guest kernel, host, unknown. 0, -ENOMEM or a negative errno of writing.
 */
int firefox_write(const struct profile *profile, FILE *to);

#endif
