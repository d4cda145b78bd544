/* SPDX-License-Identifier: Apache-2.0 */
/* Linked at kernel addresses, with a function into which two others are inlined. */
__attribute__((section(".text.head"))) void _text(void)
{
}

volatile unsigned long jiffies;

static inline __attribute__((always_inline)) void read_jiffies(unsigned long *to)
{
	*to += jiffies * 3;
}

static inline __attribute__((always_inline)) void account_tick(unsigned long *to)
{
	read_jiffies(to);
	*to ^= 5;
}

unsigned long tick_handle(unsigned long value)
{
	account_tick(&value);
	return value;
}
