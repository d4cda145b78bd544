# SPDX-License-Identifier: Apache-2.0
# The flame graph page: d3-flame-graph and our script in one file, which the program contains. It is
# in build/web whatever BUILD is, and npm runs only when its input has changed.
WEB_SOURCES := $(wildcard $(addprefix vmm/report/web/,*.js *.mjs *.html *.css))
WEB_PAGE    := build/web/flame_graph.html

# A tarball of "make dist" has the page, so that it can be built without npm.
ifneq ($(wildcard prebuilt/flame_graph.html),)
$(WEB_PAGE): prebuilt/flame_graph.html
	@mkdir -p build/web
	$(Q)cp $< $@
else
build/web/installed: $(addprefix vmm/report/web/,package.json package-lock.json .npmrc)
	@mkdir -p build/web
	@echo "  NPM     build/web"
	$(Q)cp $^ build/web/
	$(Q)cd build/web && flock . npm ci --ignore-scripts --no-progress > npm.log 2>&1 || { \
		tail -n 20 npm.log >&2; \
		echo "kvmscope: npm could not fetch the packages of" \
			"vmm/report/web/package-lock.json;" \
			"the whole output is in build/web/npm.log" >&2; exit 1; }
	$(Q)touch $@

$(WEB_PAGE): build/web/installed $(WEB_SOURCES)
	@echo "  BUNDLE  $@"
	$(Q)cp $(WEB_SOURCES) build/web/ && cd build/web && flock . node build.mjs $(@F)
endif

# The object contains the page.
$(BUILD)/vmm/report/flame_graph.o: $(WEB_PAGE)

# Messages of pprof and OTLP, in C; the same whatever BUILD is.
build/pprof/vmm/report/%.pb-c.c: vmm/report/%.proto
	@mkdir -p build/pprof
	@echo "  PROTOC  $<"
	$(Q)command -v protoc-c > /dev/null || { \
		echo "kvmscope: protoc-c is missing (package protobuf-c-compiler): make deps" >&2; \
		exit 1; }
	$(Q)protoc-c --c_out=build/pprof $<

$(BUILD)/vmm/report/%.pb-c.o: build/pprof/vmm/report/%.pb-c.c
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -Wno-cast-qual -c -o $@ $<

$(BUILD)/vmm/report/pprof.o $(BUILD)/vmm/report/otlp.o $(BUILD)/tests/unit/pprof_rules.o: \
	build/pprof/vmm/report/pprof.pb-c.c build/pprof/vmm/report/otlp.pb-c.c
LIBRARY_EXTRA += $(BUILD)/vmm/report/pprof.pb-c.o $(BUILD)/vmm/report/otlp.pb-c.o
