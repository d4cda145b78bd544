// SPDX-License-Identifier: Apache-2.0
// The only C++ of the project: runs the C test bodies under googletest.
#include "tests/unit/shim/test.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <string>

namespace {

class CTest : public testing::Test {
 public:
  explicit CTest(test_body *body) : body_(body) {}
  void TestBody() override { body_(); }

 private:
  test_body *body_;
};

std::string Format(const char *format, va_list arguments) {
  char text[4096];
  vsnprintf(text, sizeof(text), format, arguments);
  return text;
}

}  // namespace

extern "C" void test_register(const char *suite, const char *name, const char *file, int line,
                              test_body *body) {
  testing::RegisterTest(suite, name, nullptr, nullptr, file, line,
                        [body]() -> testing::Test * { return new CTest(body); });
}

extern "C" void test_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  GTEST_MESSAGE_AT_(file, line, Format(format, arguments).c_str(),
                    testing::TestPartResult::kNonFatalFailure);
  va_end(arguments);
}

extern "C" void test_skip(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  GTEST_MESSAGE_AT_(file, line, Format(format, arguments).c_str(), testing::TestPartResult::kSkip);
  va_end(arguments);
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
