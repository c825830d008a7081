# kvmark needs Go and make; everything else is fetched as Go modules.

GO          ?= go
DURATION    ?= 60s
RUNFLAGS    ?=
FUZZTIME    ?= 30s
BENCH       ?= .
BENCHTIME   ?= 0.3s
COUNT       ?= 1
VERSUSFLAGS ?=
OPENLOOPFLAGS ?=
PKGS        ?= ./...

# The products are pure Go, built the same way everywhere so that two builds of one tree are one binary: what the user has set
# (also with go env -w) counts where it says how modules are found and kept, and nowhere else. "make build GOARCH=arm64" builds for
# another machine. compare builds by the same recipe (client/experiment/recipe.go; a test compares the two).
GOOS        := $(shell $(GO) env GOHOSTOS)
GOARCH      := $(shell $(GO) env GOHOSTARCH)
LEVEL_386   := GO386=sse2
LEVEL_amd64 := GOAMD64=v1
LEVEL_arm64 := GOARM64=v8.0
LEVEL_ppc64 := GOPPC64=power8
LEVEL_ppc64le := GOPPC64=power8
LEVEL_riscv64 := GORISCV64=rva20u64
PINNED       = GODEBUG= GOGC= GOMEMLIMIT= GOMAXPROCS= GOROOT= GOWORK=off GO111MODULE= GOENV=off GOOS=$(GOOS) GOARCH=$(GOARCH) \
  CGO_ENABLED=0 GOEXPERIMENT= GOFIPS140=off GOFLAGS=-trimpath $(LEVEL_$(GOARCH))
USER_GO      = GOAUTH GOCACHE GOCACHEPROG GOINSECURE GOMODCACHE GONOPROXY GONOSUMDB GOPATH GOPRIVATE GOPROXY GOSUMDB GOTMPDIR GOTOOLCHAIN GOVCS
# The commit, followed by + if files differ from it, where git knows it. A fixed length keeps the code the same from commit to commit.
COMMIT      := $(strip $(shell git rev-parse --show-prefix HEAD 2>/dev/null))
STAMP       := $(if $(word 2,$(COMMIT)),,$(if $(COMMIT),kvmark-commit=$(COMMIT)$(if $(shell git status --porcelain 2>/dev/null),+,-)))
LDFLAGS      = $(if $(STAMP),-X kvmark/client/result.stamp=$(STAMP) -X kvmark/kvserver/stats.stamp=$(STAMP))
BUILD        = $(foreach v,$(USER_GO),$(v)='$(shell $(GO) env $(v))') $(PINNED) $(GO) build -trimpath -buildvcs=false -pgo=off "-ldflags=$(LDFLAGS)"

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  variables: DURATION=$(DURATION) RUNFLAGS FUZZTIME=$(FUZZTIME) BENCH=$(BENCH) BENCHTIME=$(BENCHTIME) COUNT=$(COUNT) PKGS=$(PKGS)"

.PHONY: run
run: build ## build, then measure QPS of every storage mode (DURATION a phase)
	bin/kvmark run --duration $(DURATION) $(RUNFLAGS)

.PHONY: build
build: ## build bin/kvserver and bin/kvmark
	@mkdir -p bin
	$(BUILD) -o bin/kvserver ./cmd/kvserver
	$(BUILD) -o bin/kvmark ./cmd/kvmark

.PHONY: test
test: ## run every test
	CGO_ENABLED=0 $(GO) vet $(PKGS)
	CGO_ENABLED=0 $(GO) test -timeout 15m $(PKGS)

.PHONY: race
race: ## run every test under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $(PKGS)

.PHONY: lint
lint: ## vet, gofumpt and staticcheck
	$(GO) vet $(PKGS)
	@out=$$($(GO) run $(GOFUMPT) -l .); test -z "$$out" || { echo "not in gofumpt's form:"; echo "$$out"; exit 1; }
	$(GO) run $(STATICCHECK) $(PKGS)

.PHONY: lint-tools
lint-tools: # what lint fetches beside the modules of go.mod
	@echo $(GOFUMPT) $(STATICCHECK)

.PHONY: bench
bench: ## run the micro benchmarks (benchstat reads the output)
	CGO_ENABLED=0 $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(PKGS)

.PHONY: crash
crash: ## kill -9 under load, 208 rounds over modes and policies
	KVMARK_CRASH=13 CGO_ENABLED=0 $(GO) test -count=1 -timeout 30m -run Killing -v ./kvserver

.PHONY: power
power: ## simulated power cuts, about 25,000, checked against a model
	KVMARK_POWER=300 CGO_ENABLED=0 $(GO) test -count=1 -timeout 90m -run TestPowerCuts -v ./kvserver

.PHONY: damage
damage: ## every bit flipped and every length cut of recorded data directories
	KVMARK_DAMAGE_STRIDE=1 CGO_ENABLED=0 $(GO) test -count=1 -timeout 90m -run EveryDamage -v ./kvserver

.PHONY: profile
profile: build ## where an operation's time goes, into kvserver/PROFILE.md (system calls and wake-ups need perf)
	$(GO) run ./cmd/internal/profile -out kvserver/PROFILE.md

.PHONY: versus
versus: build ## drive kvserver, redis, valkey, memcached in interleaved rounds (VERSUSFLAGS=-h lists the options)
	$(GO) run ./cmd/internal/versus -kvserver bin/kvserver $(VERSUSFLAGS)

.PHONY: openloop
openloop: build ## kvmark in open loop beside a minimal client, both servers (OPENLOOPFLAGS=-h lists the options; 10 min)
	$(GO) run ./cmd/internal/openloop -kvmark bin/kvmark -kvserver bin/kvserver $(OPENLOOPFLAGS)

.PHONY: restart
restart: build ## start after a crash: 20 million Sets over a million keys beside 1 million, every mode and Redis
	$(GO) run ./cmd/internal/restart -kvserver bin/kvserver

# Both go on where they were cut; results/trust and results/power hold what was recorded.
SIM         := KVMARK_LONG=1 CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 0

.PHONY: trust
trust: ## kvserver against itself: how often compare calls a difference (20 min)
	KVMARK_SIM_OUT=$(CURDIR)/results/trust $(SIM) -run '^TestTrust$$' ./client/experiment

.PHONY: trust-power
trust-power: ## kvserver against slower ones: how often compare finds it (15 min)
	KVMARK_SIM_OUT=$(CURDIR)/results/power $(SIM) -run '^TestPower$$' ./client/experiment

.PHONY: fuzz
fuzz: ## fuzz every decoder, FUZZTIME each
	@for p in $$($(GO) list $(PKGS)); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; CGO_ENABLED=0 $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
