/* SPDX-License-Identifier: Apache-2.0 */
/* What a terminal obeys, or a log takes for the end of a line, where a name is to be shown. */
#ifndef KVMSCOPE_SHARED_CONTROL_CHARACTER_H
#define KVMSCOPE_SHARED_CONTROL_CHARACTER_H

#include <stddef.h>

/*
 * Bytes of the control character that TEXT begins with, C0, DEL or, in UTF-8, C1 (ECMA-48, 5.2
 * and 5.3); 0: it begins with none, or is at its end. Any thread.
 */
size_t control_character(const char *text);

#endif
