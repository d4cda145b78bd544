/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/option_number.h"

#include "shared/parse_number.h"

unsigned int option_number(const struct argp_state *state, const char *name, const char *text,
			   unsigned int low, unsigned int high)
{
	uint64_t number = low;
	const char *end = parse_decimal(text, high, &number);

	if (!end || *end || number < low)
		argp_error(state, "%s %s: it must be a number from %u to %u", name, text, low,
			   high);
	return (unsigned int)number;
}
