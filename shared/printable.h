/* SPDX-License-Identifier: Apache-2.0 */
/* Makes untrusted text safe to print: names come from guests and may contain anything. Any thread.
 */
#ifndef KVMSCOPE_SHARED_PRINTABLE_H
#define KVMSCOPE_SHARED_PRINTABLE_H

#include <stddef.h>

/*
 * Bytes of the control character that TEXT begins with: C0, DEL or, in UTF-8, C1 (ECMA-48, 5.2
 * and 5.3). 0 if TEXT is empty or begins with another character.
 */
size_t control_character_size(const char *text);

/*
 * Replaces each byte that is not UTF-8, and each character that controls a terminal, ends a line,
 * is invisible or reorders text, by '?'. In place; the text never grows.
 */
void make_printable(char *text);

#endif
