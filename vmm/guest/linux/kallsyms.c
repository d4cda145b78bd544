/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/kallsyms.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/param.h>

#define TOKENS          256
#define TOKEN_MAX       64  /* bytes of one token, its NUL included */
#define PART            8   /* of a token */
#define BLOCK           256 /* symbols per marker */
#define COUNT_MIN       (2 * BLOCK)
#define COUNT_MAX       (8u << 20)
#define BLOCK_BYTES_MAX (BLOCK * 130ull) /* of one block of compressed names */
#define KERNEL_START    0xffffffff80000000ull
#define KERNEL_START_32 0xc0000000ull /* PAGE_OFFSET with VMSPLIT_3G (arch/x86/Kconfig) */
#define PER_CPU_END     0x10000000ull /* absolute symbols are below */
#define WORK_MAX        (16u << 20)   /* names and offsets visited before the search gives up */

static uint16_t token_offset(struct span bytes, uint64_t index_at, unsigned int token)
{
	uint16_t offset = 0;

	span_u16(bytes, index_at + token * 2ull, &offset);
	return offset;
}

/* Token I starts where token I - 1 ends: small ascending steps from 0. */
static bool is_token_index(struct span bytes, uint64_t at)
{
	uint16_t last = token_offset(bytes, at, 0);

	if (last || !span_contains(bytes, at, KALLSYMS_TOKEN_INDEX_SIZE))
		return false;
	for (unsigned int token = 1; token < TOKENS; token++) {
		uint16_t offset = token_offset(bytes, at, token);

		/* An unused code has an empty token of one byte. */
		if (offset <= last || offset - last > TOKEN_MAX)
			return false;
		last = offset;
	}
	return true;
}

/* Every token must end with a NUL just before the next one, and be valid text for names. */
static bool are_tokens(struct span bytes, uint64_t tokens, uint64_t index_at, uint64_t end)
{
	for (unsigned int token = 0; token < TOKENS; token++) {
		uint64_t start = tokens + token_offset(bytes, index_at, token);
		uint64_t next = token + 1 < TOKENS
					? tokens + token_offset(bytes, index_at, token + 1)
					: end;

		if (next <= start || next > end || bytes.data[next - 1])
			return false;
		for (uint64_t at = start; at < next - 1; at++)
			if (!isgraph(bytes.data[at]))
				return false;
	}
	return true;
}

/* The tokens end just before their index: their start depends on the unknown length of the last. */
static bool find_tokens(struct span bytes, uint64_t index_at, uint64_t *tokens)
{
	uint64_t last = token_offset(bytes, index_at, TOKENS - 1);

	for (uint64_t padding = 0; padding < 8; padding++)
		for (uint64_t length = 1; length <= TOKEN_MAX; length++) {
			uint64_t size = last + length + padding;

			if (size > index_at)
				return false;
			if (are_tokens(bytes, index_at - size, index_at, index_at - padding)) {
				*tokens = index_at - size;
				return true;
			}
		}
	return false;
}

bool kallsyms_find_token_index(struct span bytes, uint64_t from, uint64_t *token_index)
{
	uint64_t tokens;

	for (uint64_t at = from; span_contains(bytes, at, KALLSYMS_TOKEN_INDEX_SIZE); at += 4) {
		uint32_t two;

		/* 0, then a small number: rejects nearly every other offset. */
		memcpy(&two, bytes.data + at, sizeof(two));
		if ((two << 16 | two >> 16) - 1 >= TOKEN_MAX)
			continue;
		if (is_token_index(bytes, at) && find_tokens(bytes, at, &tokens)) {
			*token_index = at;
			return true;
		}
	}
	return false;
}

/* The length of the compressed name at offset AT, and the number of bytes that encode it. */
static bool name_length(const struct kallsyms *kallsyms, uint64_t at, uint32_t *length,
			uint32_t *bytes)
{
	uint8_t low, high;

	if (!span_u8(kallsyms->window, at, &low))
		return false;
	*length = low;
	*bytes = 1;
	if (low & 0x80 && kallsyms->long_lengths) {
		if (!span_u8(kallsyms->window, at + 1, &high) || high & 0x80)
			return false;
		*length = (low & 0x7f) | (uint32_t)high << 7;
		*bytes = 2;
	}
	return *length != 0;
}

/* Do COUNT names fill the range from NAMES to MARKERS, with each block at its marker? */
static bool names_match_markers(const struct kallsyms *kallsyms, uint32_t *work)
{
	uint64_t at = kallsyms->names;

	for (uint32_t i = 0; i < kallsyms->count; i++) {
		uint32_t length, bytes, marker;

		if (++*work > WORK_MAX)
			return false;
		if (i % BLOCK == 0 &&
		    (!span_u32(kallsyms->window, kallsyms->markers + i / BLOCK * 4ull, &marker) ||
		     at - kallsyms->names != marker))
			return false;
		if (!name_length(kallsyms, at, &length, &bytes))
			return false;
		at += bytes + length;
		if (at > kallsyms->markers)
			return false;
	}
	return kallsyms->markers - at < 8;
}

/* Is the number at COUNT_AT that of MARKER_COUNT blocks of names that start just after it? */
static bool try_count(struct kallsyms *kallsyms, uint64_t count_at, uint32_t marker_count,
		      uint32_t *work)
{
	uint32_t count;

	if (!span_u32(kallsyms->window, count_at, &count) || count < COUNT_MIN ||
	    count > COUNT_MAX || (count + BLOCK - 1) / BLOCK != marker_count)
		return false;
	kallsyms->count = count;
	kallsyms->count_at = count_at;
	for (unsigned int form = 0; form < 4; form++) {
		kallsyms->names = count_at + (form & 1 ? 4 : 8);
		kallsyms->long_lengths = form < 2;
		if (names_match_markers(kallsyms, work))
			return true;
	}
	return false;
}

/* Searches for the count before MARKER_COUNT blocks of names, the last of unknown size. */
static bool find_count(struct kallsyms *kallsyms, uint32_t marker_count, uint32_t *work)
{
	uint32_t last_block;
	uint64_t highest;

	if (!span_u32(kallsyms->window, kallsyms->markers + (marker_count - 1) * 4ull,
		      &last_block) ||
	    kallsyms->markers < last_block + 8ull)
		return false;
	highest = (kallsyms->markers - last_block - 4) & ~3ull;
	for (uint64_t back = 0; back < BLOCK_BYTES_MAX && back <= highest && ++*work < WORK_MAX;
	     back += 4)
		if (try_count(kallsyms, highest - back, marker_count, work))
			return true;
	return false;
}

/* The number of ascending block offsets at AT, which start with 0. */
static uint32_t count_markers(struct span window, uint64_t at, uint64_t end)
{
	uint32_t last = 0, count = 0, marker;

	for (; at + 4 <= end && span_u32(window, at, &marker); at += 4, count++) {
		if (count ? marker < last + BLOCK * 2 || marker > last + BLOCK_BYTES_MAX
			  : marker != 0)
			break;
		last = marker;
	}
	return count;
}

/*
 * The markers are before the tokens. In 6.2 and 6.3 a sequence table is in between, whose first
 * bytes may look like one more marker.
 */
static bool find_markers(struct kallsyms *kallsyms)
{
	uint32_t work = 0;

	for (uint64_t at = kallsyms->tokens & ~3ull; at >= 4 && work < WORK_MAX;) {
		uint32_t count, first;

		at -= 4;
		if (!span_u32(kallsyms->window, at, &first) || first)
			continue;
		count = count_markers(kallsyms->window, at, kallsyms->tokens);
		work += count + 1;
		kallsyms->markers = at;
		for (uint32_t less = 0; less < 2 && count >= less + 2; less++)
			if (find_count(kallsyms, count - less, &work))
				return true;
	}
	return false;
}

/* The tokens were checked: each ends before the next one. */
static void set_token_lengths(struct kallsyms *kallsyms)
{
	for (unsigned int token = 0; token < TOKENS; token++) {
		uint64_t at = kallsyms->tokens +
			      token_offset(kallsyms->window, kallsyms->token_index, token);

		kallsyms->token_at[token] = at;
		kallsyms->token_length[token] =
			(uint8_t)strlen((const char *)kallsyms->window.data + at);
	}
}

int kallsyms_locate(struct kallsyms *kallsyms, struct span window, uint64_t gva,
		    uint64_t token_index)
{
	*kallsyms = (struct kallsyms){
		.window = window, .gva = gva, .word = gva >> 32 ? 8 : 4, .token_index = token_index
	};
	if (!span_contains(window, token_index, KALLSYMS_TOKEN_INDEX_SIZE) || gva % 8 ||
	    !find_tokens(window, token_index, &kallsyms->tokens))
		return -ENOENT;
	set_token_lengths(kallsyms);
	return find_markers(kallsyms) ? 0 : -ENOENT;
}

static uint64_t align(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

/* False, with VALUE unchanged: it is not in the window. */
static bool read_pointer(const struct kallsyms *kallsyms, uint64_t at, uint64_t *value)
{
	return span_copy(kallsyms->window, at, value, kallsyms->word);
}

uint64_t kallsyms_address(const struct kallsyms *kallsyms, uint32_t index)
{
	uint64_t absolute = 0;
	uint32_t offset = 0;

	if (kallsyms->encoding == KALLSYMS_ABSOLUTE) {
		read_pointer(kallsyms, kallsyms->addresses + index * (uint64_t)kallsyms->word,
			     &absolute);
		return absolute;
	}
	span_u32(kallsyms->window, kallsyms->addresses + index * 4ull, &offset);
	if (kallsyms->encoding == KALLSYMS_PC_RELATIVE)
		return kallsyms->gva + kallsyms->addresses + index * 4ull +
		       (uint64_t)(int64_t)(int32_t)offset;
	if (kallsyms->encoding == KALLSYMS_BASE_RELATIVE)
		return kallsyms->base + offset;
	return (int32_t)offset >= 0 ? offset
				    : kallsyms->base - 1 - (uint64_t)(int64_t)(int32_t)offset;
}

/* Symbols are sorted by address: per-CPU ones from 0 up, then the kernel's. */
static bool addresses_ascend(const struct kallsyms *kallsyms)
{
	uint64_t size = kallsyms->count *
			(kallsyms->encoding == KALLSYMS_ABSOLUTE ? (uint64_t)kallsyms->word : 4);
	uint64_t kernel_start = kallsyms->word == 8 ? KERNEL_START : KERNEL_START_32, last = 0;
	uint32_t of_kernel = 0;

	if (!span_contains(kallsyms->window, kallsyms->addresses, size))
		return false;
	for (uint32_t i = 0; i < kallsyms->count; i++) {
		uint64_t address = kallsyms_address(kallsyms, i);

		if (address < last || (address >= PER_CPU_END && address < kernel_start))
			return false;
		of_kernel += address >= kernel_start;
		last = address;
	}
	return of_kernel > kallsyms->count / 2;
}

/* Variants of the table after the token index (since 6.4). ALIGNMENT is that of pointers, or 4 for
 * small entries. */
static bool set_after(struct kallsyms *kallsyms, uint64_t alignment)
{
	kallsyms->addresses = align(kallsyms->token_index + KALLSYMS_TOKEN_INDEX_SIZE, alignment);
	if (kallsyms->encoding == KALLSYMS_PC_RELATIVE || kallsyms->encoding == KALLSYMS_ABSOLUTE)
		return true;
	return read_pointer(kallsyms,
			    align(kallsyms->addresses + kallsyms->count * 4ull, alignment),
			    &kallsyms->base);
}

/* Variants of the table before the count (until 6.3). */
static bool set_before(struct kallsyms *kallsyms)
{
	bool absolute = kallsyms->encoding == KALLSYMS_ABSOLUTE;
	uint64_t word = kallsyms->word;
	uint64_t size =
		absolute ? kallsyms->count * word : align(kallsyms->count * 4ull, word) + word;

	if (size > kallsyms->count_at)
		return false;
	kallsyms->addresses = kallsyms->count_at - size;
	return absolute || read_pointer(kallsyms, kallsyms->count_at - word, &kallsyms->base);
}

int kallsyms_try_addresses(struct kallsyms *kallsyms, unsigned int number)
{
	static const struct {
		enum kallsyms_encoding encoding;
		uint64_t alignment; /* after the token index; 0: before the count */
	} forms[] = {
		{ KALLSYMS_ABSOLUTE_PER_CPU, 8 }, { KALLSYMS_BASE_RELATIVE, 8 },
		{ KALLSYMS_PC_RELATIVE, 4 },      { KALLSYMS_PC_RELATIVE, 8 },
		{ KALLSYMS_ABSOLUTE, 8 },         { KALLSYMS_ABSOLUTE_PER_CPU, 0 },
		{ KALLSYMS_BASE_RELATIVE, 0 },    { KALLSYMS_ABSOLUTE, 0 },
	};

	if (number >= sizeof(forms) / sizeof(forms[0]))
		return -ERANGE;
	kallsyms->encoding = forms[number].encoding;
	return (forms[number].alignment
			? set_after(kallsyms, MIN(forms[number].alignment, kallsyms->word))
			: set_before(kallsyms)) &&
			       addresses_ascend(kallsyms)
		       ? 0
		       : -ENOENT;
}

/*
 * Expands the SIZE bytes at AT to TEXT, which has room for CAPACITY + PART bytes; returns the
 * length, 0 if it does not fit. Most tokens are shorter than PART, which is copied at once: the
 * index after the tokens makes these reads safe.
 */
static size_t expand(const struct kallsyms *kallsyms, uint64_t at, uint32_t size, char *text,
		     size_t capacity)
{
	const uint8_t *data = kallsyms->window.data;
	size_t length = 0;

	for (uint64_t end = at + size; at < end; at++) {
		uint8_t token = data[at], token_length = kallsyms->token_length[token];
		const uint8_t *from = data + kallsyms->token_at[token];

		if (token_length > capacity - length)
			return 0;
		if (token_length <= PART)
			memcpy(text + length, from, PART);
		else
			memcpy(text + length, from, token_length);
		length += token_length;
	}
	return length;
}

int kallsyms_next_name(const struct kallsyms *kallsyms, uint64_t *position, char *type, char *name)
{
	uint64_t at = kallsyms->names + *position;
	char text[KALLSYMS_NAME_MAX + PART]; /* the type, then the name */
	uint32_t compressed, bytes;
	size_t length;

	if (!name_length(kallsyms, at, &compressed, &bytes) ||
	    !span_contains(kallsyms->window, at + bytes, compressed))
		return -EINVAL;
	length = expand(kallsyms, at + bytes, compressed, text, KALLSYMS_NAME_MAX);
	if (length < 2 || !isalpha((unsigned char)text[0]))
		return -EINVAL;
	*position += bytes + compressed;
	*type = text[0];
	memcpy(name, text + 1, length - 1);
	name[length - 1] = '\0';
	return 0;
}
