/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/hash.h"

#include <unistd.h>

#include "tests/unit/shim/test.h"

#define KEYS    4096u
#define BUCKETS 1024u
/* Four are expected; with random hashes, a bucket of 32 occurs once in 10^15 tables. */
#define LONGEST 32u

static unsigned int longest_bucket(const uint64_t *hashes)
{
	unsigned int counts[BUCKETS] = { 0 }, longest = 0;

	for (size_t i = 0; i < KEYS; i++) {
		unsigned int count = ++counts[hashes[i] % BUCKETS];

		longest = count > longest ? count : longest;
	}
	return longest;
}

static void check_spread(void)
{
	uint64_t first[KEYS], second[KEYS], bytes[KEYS];

	for (unsigned int shift = 0; shift <= 52; shift++) {
		for (uint64_t i = 0; i < KEYS; i++) {
			const uint64_t words[3] = { 1, i << shift, 2 };

			first[i] = hash_mix(0, i << shift);
			second[i] = hash_mix(hash_mix(0, i << shift), 7);
			bytes[i] = hash_mix_bytes(0, words, sizeof(words) - 3);
		}
		CHECK(longest_bucket(first) <= LONGEST);
		CHECK(longest_bucket(second) <= LONGEST);
		CHECK(longest_bucket(bytes) <= LONGEST);
	}
}

/* Under any key of the process: a weak one would be found in one run of some hundred. */
TEST(hash, spreads_keys_that_differ_in_a_few_bits)
{
	const uint64_t kept[2] = { hash_key[0], hash_key[1] };

	for (int i = 0; i < 100; i++) {
		check_spread();
		if (getentropy(hash_key, sizeof(hash_key)))
			FAIL_TEST("no random key");
	}
	memcpy(hash_key, kept, sizeof(kept));
}

/* Keys that collide in one process do not collide in another: a guest cannot choose them. */
TEST(hash, collisions_are_those_of_the_process)
{
	const uint64_t kept[2] = { hash_key[0], hash_key[1] };
	uint64_t keys[KEYS], hashes[KEYS];
	size_t count = 0;

	for (uint64_t key = 0; count < KEYS; key++)
		if (hash_mix(0, key) % BUCKETS == 0)
			keys[count++] = key;
	hash_key[0] ^= 0x1122334455667788;
	hash_key[1] ^= 0x99aabbccddeeff00;
	for (size_t i = 0; i < KEYS; i++)
		hashes[i] = hash_mix(0, keys[i]);
	memcpy(hash_key, kept, sizeof(kept));
	CHECK(longest_bucket(hashes) <= LONGEST);
}

TEST(hash, bytes_are_hashed_with_their_number)
{
	CHECK(hash_mix_bytes(0, "", 0) != hash_mix_bytes(0, "\0", 1));
	CHECK(hash_mix_bytes(0, "abcdefgh", 8) != hash_mix_bytes(0, "abcdefgh\0", 9));
	CHECK(hash_mix_bytes(0, "abcdefgh", 8) == hash_mix_bytes(0, "abcdefgh", 8));
	CHECK(hash_mix_bytes(0, "abcdefghi", 9) != hash_mix_bytes(0, "abcdefghj", 9));
}
