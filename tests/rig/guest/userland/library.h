/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVMSCOPE_TESTS_RIG_GUEST_USERLAND_LIBRARY_H
#define KVMSCOPE_TESTS_RIG_GUEST_USERLAND_LIBRARY_H

void library_twist(void);
void library_fold_all(void); /* works in library_fold() */

#endif
