/* SPDX-License-Identifier: Apache-2.0 */
// A program whose functions the compiler puts into one another in many ways: templates, lambdas, a namespace
// without a name, recursion, parts that exceptions take apart, functions of the library.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

inline uint64_t mix(uint64_t value)
{
	value ^= value >> 33;
	return value * 0xff51afd7ed558ccdull;
}

inline uint64_t mix_twice(uint64_t value)
{
	return mix(mix(value) + 1);
}

template <unsigned N> struct unrolled {
	static inline uint64_t sum(const uint64_t *from)
	{
		return mix_twice(*from) + unrolled<N - 1>::sum(from + 1);
	}
};

template <> struct unrolled<0> {
	static inline uint64_t sum(const uint64_t *)
	{
		return 0;
	}
};

struct shape {
	virtual ~shape() = default;
	virtual double area() const = 0;
};

struct square : shape {
	explicit square(double side) : side_(side) {}
	double area() const override
	{
		return side_ * side_;
	}
	double side_;
};

} // namespace

extern "C" {
uint64_t values[4096];

__attribute__((noinline)) uint64_t hash_block(const uint64_t *from, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i + 4 <= count; i += 4)
		sum += unrolled<4>::sum(from + i);
	return sum;
}

__attribute__((noinline)) uint64_t fail_often(uint64_t value)
{
	try {
		if (mix(value) & 1)
			throw std::runtime_error("odd " + std::to_string(value));
		return value;
	} catch (const std::runtime_error &error) {
		return mix_twice(std::string(error.what()).size());
	}
}

__attribute__((noinline)) uint64_t recurse(uint64_t depth)
{
	return depth ? mix(depth) + recurse(depth / 2) + recurse(depth / 3) : 0;
}
}

static uint64_t sort_and_count()
{
	std::vector<uint64_t> sorted(values, values + 4096);
	std::map<uint64_t, std::string> names;
	auto is_below = [](uint64_t a, uint64_t b) { return mix(a) < mix(b); };

	std::sort(sorted.begin(), sorted.end(), is_below);
	for (auto value : sorted)
		names[value % 97] += static_cast<char>('a' + value % 26);
	return names.size() + sorted[7];
}

int main(int argc, char **)
{
	std::vector<std::unique_ptr<shape>> shapes;
	uint64_t sum = 0;
	double area = 0;

	for (int i = 0; i < 4096; i++)
		values[i] = mix(static_cast<uint64_t>(i + argc));
	for (int i = 0; i < 10; i++)
		shapes.push_back(std::make_unique<square>(i));
	for (const auto &each : shapes)
		area += each->area();
	for (int i = 0; i < 50000; i++)
		sum += hash_block(values, 4096) + fail_often(static_cast<uint64_t>(i));
	sum += recurse(1000) + sort_and_count();
	std::printf("%llu %f\n", static_cast<unsigned long long>(sum), area);
	return 0;
}
