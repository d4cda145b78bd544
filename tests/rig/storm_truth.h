/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a watch that was hit far more often than its limit allows: each write is a sample, or is
 * between a THROTTLE after the sample before it and the UNTHROTTLE before the next one. No other
 * write is missing. The guest writes 1, 2, 3, ... to the watched variable, so each sample
 * identifies its write.
 */
#ifndef KVMSCOPE_TESTS_RIG_STORM_TRUTH_H
#define KVMSCOPE_TESTS_RIG_STORM_TRUTH_H

/*
 * Checks event EVENT of the recording at PATH, whose variable was written up to WRITTEN on one
 * vCPU.
 */
void storm_check(const char *path, unsigned int event, unsigned long written);

#endif
