# dayone: the two commands a newcomer needs are `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Two tags make the container libraries build without gpgme and btrfs headers.
TAGS := containers_image_openpgp exclude_graphdriver_btrfs
export GOFLAGS := -buildvcs=false -tags=containers_image_openpgp,exclude_graphdriver_btrfs
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Which packages are tested; for example make test PACKAGES=./registry/...
PACKAGES ?= ./...

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: setup-demo build ## Day 1 on this machine: three masters boot an image built here (TINY=1, KEEP=1, INSTALL_DIR=…, BASE_IMAGE=…).
	@bin/demo $(if $(TINY),--tiny) $(if $(KEEP),--keep) $(if $(INSTALL_DIR),--install-dir '$(INSTALL_DIR)') $(if $(BASE_IMAGE),--base '$(BASE_IMAGE)')

.PHONY: build
build: setup-build ## Put the binaries into bin/.
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/dayone ./hack/demo ./hack/testnode/cmd/testnode
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/dayone-daemon

.PHONY: test
test: setup-test build verify ## Set up everything and run all tests against the real parts (as root).
	go test -p 2 -timeout 40m $(PACKAGES)

.PHONY: test-fast
test-fast: setup-build ## Unit and in-process tests only: no root, no packages, under two minutes.
	go test -short -timeout 5m $(PACKAGES)

.PHONY: verify
verify: setup-build ## Format, vet, lint, import direction, sizes, docs.
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	GOFLAGS= go run $(STATICCHECK) -tags=containers_image_openpgp,exclude_graphdriver_btrfs ./...
	go mod verify
	go mod tidy -diff
	go run ./hack/gendocs -check
	go run ./hack/verify

.PHONY: generate
generate: ## Write the files that are made from others (docs/install-config.md).
	go run ./hack/gendocs

.PHONY: bench
bench: setup-test build ## Print the table of figures and write out/bench.json.
	go run ./hack/bench --out out/bench.json

.PHONY: clean
clean: ## Remove what was built here; the caches outside the tree stay.
	rm -rf bin out

.PHONY: setup-build setup-demo setup-test
setup-build setup-demo setup-test: setup-%:
	@hack/setup/setup.sh $*
