/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/function_shares.h"

#include <math.h>
#include <string.h>

#include "tests/unit/shim/test.h"

const double function_shares_truth[3] = { 60, 30, 10 };

void function_shares_read(struct function_shares *shares, const char *path, const char *image,
			  const struct perf_data_events *events)
{
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(elf_symbols_load(&shares->symbols, image, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, events), 0);
	CHECK(!perf_data_reader_summary(reader)->cut_off);
	perf_data_reader_close(reader);
	symbols_free(shares->symbols);
}

/* The chain: a marker of the space, the sampled address, the return address. */
static bool is_called_by_works(const struct symbols *symbols, const struct perf_data_sample *sample)
{
	struct symbol symbol;

	return sample->callchain_size >= 3 &&
	       symbols_find(symbols, sample->callchain[2] - 1, &symbol) &&
	       !strcmp(symbol.name, "user_works");
}

void function_shares_add(struct function_shares *shares, const struct perf_data_sample *sample)
{
	static const char *const names[] = { "share_sixty", "share_thirty", "share_ten" };
	double period = (double)sample->period;
	struct symbol symbol;

	shares->weight += period;
	shares->squares += period * period;
	if (!symbols_find(shares->symbols, sample->ip, &symbol))
		return;
	for (int i = 0; i < 3; i++)
		if (!strcmp(symbol.name, names[i])) {
			shares->of[i] += period;
			shares->in_loops++;
			shares->called += is_called_by_works(shares->symbols, sample);
		}
}

double function_shares_of(const struct function_shares *shares, int i)
{
	return 100 * shares->of[i] / (shares->weight > 0 ? shares->weight : 1);
}

double effective_samples(double weight, double squares)
{
	return squares > 0 ? weight * weight / squares : 0;
}

double share_bound(double effective, double share, double least)
{
	return fmax(least, 5 * 100 * sqrt(share * (1 - share) / effective));
}
