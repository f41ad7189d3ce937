# Kemudi: everything a person or a build server does with the tree.
# `make` alone shows what there is.

GO          ?= go
# Where Go's own installation puts it: sudo does not keep the PATH of a login shell.
export PATH := $(PATH):/usr/local/go/bin
# One set of flags for whatever compiles, so that vet, staticcheck, the tests and
# the programs inside kemudi use what the build has compiled. Versions are stamped
# below; git refuses a tree that another user has cloned.
export GOFLAGS := -buildvcs=false -trimpath $(GOFLAGS)
export CGO_ENABLED := 0
GIT         := git -c safe.directory='*'
STEP        := build/step.sh
# Another machine than this one that the program is built for: make build GOARCH=arm64.
OTHER       = $(filter-out $(shell $(GO) env GOHOSTARCH),$(GOARCH))
PROGRAM     = bin/kemudi$(addprefix -linux-,$(OTHER))
# Packages whose tests run with the race detector: all that have goroutines or
# locks, which a house rule holds.
RACE        ?= $(addsuffix /...,$(addprefix ./internal/,admission aggregate announce apiserver audit auth backend cache cel client cloud cloudmanager cluster controller controllers custom dialback dns drain edge edgefeed encryption endpoint extend fleet hook ingress inotify inquiry join kubelet leader linger metricsserver netpolicy nodepool obs parts plane podnet proxy reach scavenge scheduler secureport servers simnode simulate store task up watchcache wire worker workload))
# Packages whose tests are of one goroutine, and run without it, but reach by
# package unsafe: they run with its other half, the check of pointers.
POINTERS    ?= $(addsuffix /...,$(addprefix ./internal/,layout patch))
TEST_FLAGS  ?= -count=1 -shuffle=on -timeout=40m
# How often a package with failed tests is tried again; all tries must pass (docs/decisions/020).
AGAIN       ?= 0
# Packages that work with real time, which make test-often runs.
OFTEN       ?= ^(test/(clients|e2e|image|node)|internal/(apiserver|client/https|cluster|container|controller|dialback|dns|kubelet|netpolicy|podnet|proxy|store/etcd|up))$$
# The tests of several machines with faults, and of roll-outs that lose no request.
CHAOS       ?= ^Test(RollOutsOfAServerThatDoesNotLinger|ClientsOfAllServersSeeOneOrder|ResetLeavesTheHostAsBefore|AnyMachineOfSeveralMayDie|ServerOnItsOwnRefusesWrites|PodsComeBackAfterALossOfPower|PodsOfALostNodeAreNotDoubled)$$
TRACE_DIR   := $(CURDIR)/.trace

VERSION     ?= $(shell $(GIT) describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT      := $(shell $(GIT) rev-parse HEAD 2>/dev/null)
TREE_STATE  := $(shell test -z "$$($(GIT) status --porcelain 2>/dev/null)" && echo clean || echo dirty)
DATE        := $(shell TZ=UTC0 $(GIT) log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)
STAMP       := github.com/kemudi/kemudi/internal/version
# The Kubernetes libraries (kubectl, user agents) know their version only if it is stamped too.
KUBE        := $(shell sed -n 's|^\tk8s.io/client-go v0\.|v1.|p' go.mod)
KUBE_STAMP  := $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(KUBE) -X $(p).gitMajor=1 -X $(p).gitMinor=$(word 2,$(subst ., ,$(KUBE))) -X $(p).gitCommit=$(COMMIT) -X $(p).gitTreeState=$(TREE_STATE) -X $(p).buildDate=$(DATE))
# A heap in huge pages is half as large again where the kernel gives them unasked, as Debian's does.
HEAP        := -X runtime.godebugDefault=disablethp=1
LDFLAGS     := -s -w $(HEAP) $(KUBE_STAMP) -X $(STAMP).Version=$(VERSION) -X $(STAMP).Commit=$(COMMIT) -X $(STAMP).TreeState=$(TREE_STATE) -X $(STAMP).Date=$(DATE)

.DEFAULT_GOAL := help
.PHONY: help root prerequisites runtime build release images test test-often chaos lint up down reset bench bench-scale bench-cluster bench-net bench-compare bench-baseline baseline upstream-cloud sample-server programs gateway-conformance network-policies requirements audit clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do printf '  make %-14s %s\n' "$$target" "$$text"; done

root:
	@[ "$$(id -u)" = 0 ] || { echo "this needs root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

prerequisites: ## install the Debian packages that are missing
	@build/prerequisites.sh

runtime: prerequisites ## build the programs that travel inside kemudi
	@GO=$(GO) build/runtime/build.sh

build: runtime ## build bin/kemudi; GOARCH=arm64: bin/kemudi-linux-arm64
	@$(STEP) "building kemudi$(OTHER:%= for %)" $(GO) build -ldflags '$(LDFLAGS)' -o $(PROGRAM) ./cmd/kemudi

# Nothing of the place and the time of a build goes into them, but the time of the commit.
release: ## build bin/release: the program for each kind of machine, and SHA256SUMS
	@for arch in amd64 arm64; do $(MAKE) --no-print-directory build GOARCH=$$arch PROGRAM=bin/release/kemudi-linux-$$arch || exit; done
	@cd bin/release && sha256sum kemudi-linux-amd64 kemudi-linux-arm64 >SHA256SUMS && cat SHA256SUMS

# What stops or removes a cluster must work after make clean, too.
bin/kemudi:
	@$(MAKE) --no-print-directory build

lint: runtime ## check format, vet, staticcheck and the house rules
	@GO=$(GO) build/lint.sh

# What lint checks, it checks beside the tests. What the race detector needs is compiled first: where nothing
# is compiled yet that takes all processors for minutes, in which tests of machines would run into their limits.
test: build ## run every test, end to end ones with real containers included, and lint (root)
	@$(STEP) "compiling for the race detector" env CGO_ENABLED=1 $(GO) list -race -export -deps -test -f '{{if not .}}{{end}}' $(RACE)
	@GO=$(GO) TEST_FLAGS='$(TEST_FLAGS)' KEMUDI_TRACE_DIR=$(TRACE_DIR) build/test.sh -memory -check build/lint.sh -race '$(RACE)' -pointers '$(POINTERS)' -again '$(AGAIN)'

# By chance or not: what works with real time and real machines, N times.
test-often: build ## run those suites N=5 times while other programs take all processors (root)
	@GO=$(GO) TEST_FLAGS='$(TEST_FLAGS)' build/test.sh -busy -times $(or $(N),5) -only '$(OFTEN)'

# What happens to machines by chance: as many faults, and as many clusters one after the other.
chaos: build ## run the tests that break servers and agents, ROUNDS=100 times as long (root)
	@KEMUDI_BIN=$(CURDIR)/bin/kemudi KEMUDI_ROUNDS=$(or $(ROUNDS),100) $(GO) test -count=1 -timeout=9h -v -run '$(CHAOS)' ./test/e2e

images: prerequisites ## build the images of examples and tests into bin/images
	@$(STEP) "building images" sh -c '$(GO) run ./test/image/cmd/testimages bin/images >/dev/null'

up: root build images ## start a one-node cluster in the background and the example on it (root)
	@bin/kemudi up --import bin/images/web-1.tar --import bin/images/busybox-1.tar --apply examples/web.yaml

down: bin/kemudi ## stop the cluster; its state stays
	@bin/kemudi down

reset: bin/kemudi ## remove every trace of the cluster from this machine
	@bin/kemudi reset

bench: build $(if $(BASELINE),baseline) ## measure start, memory, latency and throughput (root); BASELINE=1: and the baseline
	$(GO) run ./test/bench -kemudi bin/kemudi $(if $(BASELINE),-baseline bin/baseline -rounds $(or $(ROUNDS),2))

# What upstream's server library needs for the load from outside. Its module is
# compiled only here, so vet looks at it here, too: what that needs is compiled anyway.
baseline:
	@$(STEP) "building the baseline" $(GO) build -C test/baseline -o $(CURDIR)/bin/baseline .
	@$(STEP) "vet of the baseline" $(GO) vet -C test/baseline .

# Its module, too, is compiled and vetted only here.
upstream-cloud: ## let upstream's loops of a cloud go through the story that ours do, and compare
	@$(STEP) "building upstream's loops" $(GO) build -C test/upstreamcloud -o $(CURDIR)/bin/ ./...
	@$(STEP) "vet of them" $(GO) vet -C test/upstreamcloud ./...
	KEMUDI_UPSTREAM_CLOUD=$(CURDIR)/bin/upstreamcloud $(GO) test -count=1 -run TestCloudComesToTheSameWithUpstreamsLoopsAndOurs ./internal/cluster

# Its module, too, is compiled and vetted only here.
sample-server: ## make upstream's sample of an aggregated API server part of a Kemudi
	@$(STEP) "building the sample" $(GO) build -C test/sampleserver -o $(CURDIR)/bin/ ./...
	@$(STEP) "vet of it" $(GO) vet -C test/sampleserver ./...
	KEMUDI_SAMPLE_SERVER=$(CURDIR)/bin/sampleserver $(GO) test -count=1 -run TestServersOfAggregatedAPIsWorkAsInCertifiedClusters ./internal/cluster

# Their modules, too, are compiled and vetted only here: Helm and Kyverno take minutes each.
programs: build ## run programs that others wrote (Helm, operators, client libraries) against a Kemudi (root: metrics-server, too)
	@$(STEP) "building the programs" sh -c 'mkdir -p bin/programs && $(GO) build -C test/programs -o $(CURDIR)/bin/programs/ tool ./...'
	@$(STEP) "building cert-manager" $(GO) build -C test/programs/certmanager -o $(CURDIR)/bin/programs/ .
	@$(STEP) "building the operator of Prometheus" $(GO) build -C test/programs/prometheusoperator -o $(CURDIR)/bin/programs/prometheus-operator tool
	@$(STEP) "building Kyverno" $(GO) build -C test/programs/kyverno -o $(CURDIR)/bin/programs/ tool
	@$(STEP) "building AWS's manager, and a stand-in of its cloud" $(GO) build -C test/programs/awscloud -o $(CURDIR)/bin/programs/ tool .
	@$(STEP) "building what CSI drivers bring with them, and a stand-in of a driver" $(GO) build -C test/programs/csi -o $(CURDIR)/bin/programs/ tool .
	@GO=$(GO) build/programs.sh
	@$(STEP) "vet of ours" sh -c '$(GO) vet -C test/programs ./... && $(GO) vet -C test/programs/certmanager . && $(GO) vet -C test/programs/awscloud . && $(GO) vet -C test/programs/csi .'
	@if command -v npm >/dev/null; then $(STEP) "installing the JavaScript client" npm install --prefix bin/programs --silent --no-audit --no-fund @kubernetes/client-node@1.4.0; fi
	KEMUDI_PROGRAMS=$(CURDIR)/bin/programs $(GO) test -count=1 -run TestProgramsThatOthersWroteWorkUnmodified ./test/clients
	@if [ "$$(id -u)" = 0 ]; then KEMUDI_BIN=$(CURDIR)/bin/kemudi KEMUDI_PROGRAMS=$(CURDIR)/bin/programs $(GO) test -count=1 -v -run TestMetricsServerTakesThePlaceOfOurs ./test/e2e; else echo "metrics-server needs pods, and so root: sudo make programs"; fi

# Likewise. What the suite says in full is in bin/gateways afterwards; TEST=HTTPRouteWeight runs one of its tests.
gateway-conformance: root build ## run the conformance suite of the Gateway API against a Kemudi (root)
	@$(STEP) "building the suite" sh -c 'mkdir -p bin/gateways && $(GO) build -C test/gatewayconformance -o $(CURDIR)/bin/gateways/ tool ./coredns && $(GO) test -C test/gatewayconformance -c -o $(CURDIR)/bin/gateways/suite .'
	@$(STEP) "vet of ours" $(GO) vet -C test/gatewayconformance ./...
	KEMUDI_BIN=$(CURDIR)/bin/kemudi KEMUDI_GATEWAY_CONFORMANCE=$(CURDIR)/bin/gateways KEMUDI_GATEWAY_TEST=$(TEST) $(GO) test -count=1 -timeout=2h -v -run TestGatewaysPassTheSuiteOfTheGatewayAPI ./test/e2e

# Likewise, in bin/policies; TAGS=conflict,action runs cases with one of these tags.
network-policies: root build ## run the cases of Cyclonus, policies under which all connections are tried, against a Kemudi of two nodes (root)
	@$(STEP) "building the suite" sh -c 'mkdir -p bin/policies && $(GO) build -C test/cyclonus -o $(CURDIR)/bin/policies/ tool && $(GO) build -o bin/policies/agnhost ./test/image/agent'
	KEMUDI_BIN=$(CURDIR)/bin/kemudi KEMUDI_POLICY_SUITE=$(CURDIR)/bin/policies KEMUDI_POLICY_TAGS=$(TAGS) $(GO) test -count=1 -timeout=3h -v -run TestPoliciesPassTheCasesOfCyclonus ./test/e2e

bench-baseline: build baseline ## put the load from outside on upstream's server library, too, by turns, ROUNDS=2 (root)
	$(GO) run ./test/bench -kemudi bin/kemudi -baseline bin/baseline -rounds $(or $(ROUNDS),2) -only outside -out ''

bench-scale: build ## measure clusters of simulated nodes, STEPS=pods,rollout,... or all (root)
	$(GO) run ./test/bench -kemudi bin/kemudi -only scale -steps '$(STEPS)' -out $(if $(STEPS),'',docs/bench-scale.md)

bench-cluster: build ## measure clusters of several machines, STEPS=agent,servers,... or all, WITHIN=10m (root)
	$(GO) run ./test/bench -kemudi bin/kemudi -only cluster -steps '$(STEPS)' -within $(or $(WITHIN),0) -out $(if $(STEPS),'',docs/bench-cluster.md)

bench-net: build ## measure the network of a node, beside nginx (apt-get install nginx-light), STEPS=services,dns,... or all (root)
	$(GO) run ./test/bench -kemudi bin/kemudi -only net -steps '$(STEPS)' -out $(if $(STEPS),'',docs/bench-net.md)

# Go benchmarks of PACKAGES that match BENCH, or with LOAD=outside that load (root).
bench-compare: runtime ## compare with commit BASE by turns: PACKAGES, BENCH, ROUNDS=5, or LOAD
	@$(GO) run ./test/bench/compare -base '$(BASE)' $(if $(PACKAGES),-packages '$(PACKAGES)') $(if $(BENCH),-bench '$(BENCH)') -rounds $(or $(ROUNDS),5) $(if $(LOAD),-load '$(LOAD)' -ldflags '-s -w $(HEAP)')

requirements: ## show what the last make test has proved, where, and what is open
	@$(GO) run ./internal/trace/cmd/requirements -dir $(TRACE_DIR) -out docs/requirements/COVERAGE.md

audit: ## break what N citations of packages ONLY stand at, drawn by SEED: each test must notice (root)
	@$(GO) run ./internal/trace/cmd/audit -go $(GO) -dir $(TRACE_DIR) -n $(or $(N),20) $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

clean: ## remove what was built
	rm -rf bin $(TRACE_DIR)
	git clean -fqdX internal/container/embedded
