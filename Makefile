# dayone: the two commands a newcomer needs are `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Two tags make the container libraries build without gpgme and btrfs headers; two keep package net free of cgo, so that
# programs with and without cgo share what is compiled (hack/program has the same four).
# -trimpath everywhere: what make build compiled is what the tests link, in any checkout.
# -s: a hundred test programs link in less than half the time without symbols and debug information; panics still name
# files and lines, and profiles functions.
export GOFLAGS := -buildvcs=false -trimpath -tags=containers_image_openpgp,exclude_graphdriver_btrfs,netgo,osusergo -ldflags=-s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Which packages are tested; for example make test PACKAGES=./registry/...
PACKAGES ?= ./...
# How often each benchmark runs in make bench.
COUNT ?= 3

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# Said before anything is set up or built.
ifneq ($(and $(FULL),$(INSTALL_DIR)$(BASE_IMAGE),$(filter demo,$(MAKECMDGOALS))),)
$(error FULL=1 is the life of the sample on a base image of ours: leave out INSTALL_DIR and BASE_IMAGE, or leave out FULL=1)
endif

ifneq ($(and $(SOFT),$(TINY)$(FULL)$(BASE_IMAGE),$(filter demo,$(MAKECMDGOALS))),)
$(error SOFT=1 is Day 1 on a base image of its own: leave out TINY, FULL and BASE_IMAGE, or leave out SOFT=1)
endif

.PHONY: demo
demo: $(if $(FULL),setup-test kube-build,setup-demo) build ## Day 1 on this machine: three masters boot an image built here (TINY=1, SOFT=1, KEEP=1, INSTALL_DIR=…, BASE_IMAGE=…); FULL=1 (TINY=1, KEEP=1): the whole life; simulated machines, nodes' kubelets played, the rest real.
	@bin/demo$(if $(FULL),-life) $(if $(JSON),-o json) $(if $(TINY),--tiny) $(if $(SOFT),--soft) $(if $(KEEP),--keep) $(if $(INSTALL_DIR),--install-dir '$(INSTALL_DIR)') $(if $(BASE_IMAGE),--base '$(BASE_IMAGE)') $(if $(BASE_CA),--base-ca '$(BASE_CA)') $(if $(BASE_AUTHFILE),--base-authfile '$(BASE_AUTHFILE)')

.PHONY: build
build: setup-build ## Put the binaries into bin/.
	@mkdir -p bin bin/.linked
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/.linked/ ./cmd/dayone ./hack/testnode/cmd/testnode ./hack/demo$(if $(FULL),-life)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/.linked/ ./cmd/dayone-daemon ./cmd/dayone-registry
	@# A file that the linker wrote stays in the cache as huge pages, and a process that runs it counts them all as its own; a copy does not.
	@install bin/.linked/* bin/
	@# Under this name in the PATH it is kubectl dayone.
	@ln -sf dayone bin/kubectl-dayone

.PHONY: images
images: setup-build ## Push the container images of dayone's programs to REGISTRY=HOST:PORT/NAMESPACE (CA=, AUTH=).
	go run ./hack/images/cmd/images --registry '$(REGISTRY)' --version '$(VERSION)' $(if $(CA),--ca '$(CA)') $(if $(AUTH),--auth '$(AUTH)')

.PHONY: release
release: setup-release ## Make out/release for VERSION=v0.1.0: programs, deb, rpm, images, manifests, provenance, checksums (REGISTRY= of the images, KEY= of dayone keygen, ARCH=amd64,arm64, DARWIN= of Macs, VULNDB= or off).
	go run ./hack/release --version '$(VERSION)' $(if $(ARCH),--arch '$(ARCH)') $(if $(DARWIN),--darwin '$(DARWIN)') $(if $(VULNDB),--vulndb '$(VULNDB)') $(if $(REGISTRY),--registry '$(REGISTRY)') $(if $(KEY),--key '$(KEY)')

.PHONY: test
test: setup-test build kube-build ## Set up everything, verify, and run all tests against the real parts (as root).
	@# The release's test would compile them, for minutes within its own time limit. Debian alone has what arm64 takes.
	@go run ./hack/release --compile --arch "$$(go env GOARCH),arm64" || echo "the tests go on: that of the release says what it lacks"
	@# Many tests wait for machines that boot and for timers of Kubernetes: verify uses the processors meanwhile.
	@$(MAKE) --no-print-directory -j2 verify test-all

# Linkers and tests collect garbage a quarter as often as is Go's default: a sixth less processor time.
test-all test-fast: export GOGC := 400

# What tests link of dayone's programs they link once for the whole run (hack/program).
test-all: export DAYONE_TEST_RUN := $(shell date +%s.%N)

# The longest packages, which go test begins with: in the order of the alphabet the longest of all came near the end,
# and ran on alone.
LONGEST := hack/e2e/wholesystem cmd/dayone-registry bootstrap/openshift hack/release hack/e2e/openshift hack/e2e/deployers
LONGEST := $(LONGEST) build/buildcontroller hack/e2e bootstrap/handover cmd/dayone-controller hack/e2e/incluster
LONGEST := $(LONGEST) manifests/releasecontroller build/buildahengine

# More packages at a time than processors, for the reason above. What go test would vet, verify vets.
.PHONY: test-all
test-all:
	go test -vet=off -p 4 -timeout 25m $(if $(filter ./...,$(PACKAGES)),$(LONGEST:%=./%)) $(PACKAGES)

# Each test of these packages boots nodes or starts a cluster: with -short none of it runs. Linking the packages would
# take a quarter of test-fast.
MACHINES := hack/e2e/(buildjob|coldstart|deployers|faultlab|incluster|kubeadm|nodeagent|openshift|podimages|upstream|wholesystem)
MACHINES := $(MACHINES)|hack/kube/kubetest|hack/testnode|build/failurecontroller

.PHONY: test-fast
test-fast: setup-build ## Unit and in-process tests only: no root, no packages, about four minutes on two cores.
	go test -vet=off -short -timeout 5m $$(go list $(PACKAGES) | grep -vE '/($(MACHINES))$$')

.PHONY: test-vm
test-vm: setup-vm ## Day 1, a Day 2 rebase and soft reboots in virtual machines with kernels of their own: ten minutes emulated, KVM=1 for less (as root).
	DAYONE_TEST_VM=$(if $(KVM),kvm,1) go test -count=1 -v -timeout 30m -run InAVirtualMachine ./hack/e2e

.PHONY: test-system
test-system: setup-test kube-build ## Of make test only Day 2 on systemd hosts with real agents, with its steps and their times (as root).
	go test -count=1 -v -timeout 30m ./hack/e2e/wholesystem

# How long make soak goes on, and the seed of its dice; without one it takes the time's and prints it.
DURATION ?= 30m
SEED ?=

.PHONY: soak
soak: setup-test kube-build ## Random changes and faults on real hosts for DURATION=30m, and on Day 1 for as long; SEED=N runs one again (as root).
	DAYONE_TEST_SOAK=$(DURATION) DAYONE_TEST_SOAK_SEED=$(SEED) go test -count=1 -v -timeout 0 -run TestSoak ./hack/e2e/wholesystem
	DAYONE_TEST_FAULTS=$(DURATION) $(if $(SEED),DAYONE_SEED=$(SEED)) go test -count=1 -v -timeout 0 -run TestFaults ./hack/e2e/faultlab

# Which package make mutate changes, and how many of its places. Tests of further packages named in ROOM run, too.
ROOM ?= ./bootstrap/handover
N ?= 100

.PHONY: mutate
mutate: setup-build ## Make N=100 small faults in ROOM=./bootstrap/handover, one by one; list those that its tests do not notice (FULL=1: long tests too, SKIP=REGEXP: but these).
	@# go run would not pass on the signal that ends it.
	go build -o bin/mutate ./hack/mutate
	exec bin/mutate -count $(N) $(if $(SEED),-seed $(SEED)) $(if $(FULL),-full -memory 16) $(if $(SKIP),-skip '$(SKIP)') $(ROOM)

.PHONY: verify
verify: setup-build ## Format, vet, lint, import direction, sizes, dead code, generated files, docs.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	GOFLAGS=-trimpath go run $(STATICCHECK) -tags=containers_image_openpgp,exclude_graphdriver_btrfs,netgo,osusergo ./...
	go mod verify
	go mod tidy -diff
	go run ./hack/gendocs -check
	go run ./hack/gencrds -check
	go run ./hack/kube/cmd/kube verify
	go run ./hack/verify

.PHONY: generate
generate: ## Write the files that are made from others (docs/users/install-config.md, the CRDs).
	go run ./hack/gendocs
	go run ./hack/gencrds

.PHONY: site
site: setup-build ## Write the documentation as a website into out/site; every link is checked.
	go run ./hack/site --out out/site

# Four to six minutes on two cores when this machine has not built it yet, else a second; nothing else runs beside it.
.PHONY: kube-build
kube-build: setup-build ## Build a real Kubernetes of one program for the tests; kept outside the tree.
	@go run ./hack/kube/cmd/kube assets >/dev/null

.PHONY: kube-up kube-down
kube-up: setup-test ## Start a real single-node cluster on this machine (as root); NAME=… for a second one.
	@go run ./hack/kube/cmd/kube up $(NAME)

kube-down: setup-build ## End it: nothing of it stays.
	@go run ./hack/kube/cmd/kube down $(NAME)

.PHONY: bench
bench: setup-test setup-vm build ## Print the table of figures and write out/bench.json (medians of COUNT=3 runs; COUNT=1 is quicker).
	go run ./hack/bench --count $(COUNT) --out out/bench.json

.PHONY: clean
clean: ## Remove what was built here; the caches outside the tree stay.
	rm -rf bin out

.PHONY: setup-build setup-demo setup-test setup-vm setup-release
setup-build setup-demo setup-test setup-vm setup-release: setup-%:
	@hack/setup/setup.sh $*
