# SPDX-License-Identifier: Apache-2.0
# Programs from npm that read our exports, for tests only; their tests are skipped without them.
READERS := $(addprefix tests/e2e/readers/,package.json package-lock.json .npmrc)

build/readers/installed: $(READERS)
	@mkdir -p build/readers
	@echo "  NPM     build/readers"
	$(Q)cp $(READERS) build/readers/
	$(Q)cd build/readers && flock . npm ci --ignore-scripts --no-progress > npm.log 2>&1 || { \
		tail -n 5 npm.log >&2; \
		echo "kvmscope: tests of exports are skipped: npm could not fetch readers" >&2; }
	$(Q)touch $@

TEST_NEEDS += build/readers/installed
