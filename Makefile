# `make help` lists the targets.

# A Go that is too old fetches the version in go.mod.
export GOTOOLCHAIN ?= auto
export CGO_ENABLED = 0
export PATH := $(PATH):/usr/sbin:/sbin

# Twelve digits: by itself git takes as many as the number of objects in the clone asks for.
VERSION ?= $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo devel)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The tag leaves the cli library's generators of documents out; slim.mod: see .ci/slim.
GOBUILD = go build -modfile .cache/slim.mod -tags urfave_cli_no_docs -trimpath -buildvcs=false \
	-ldflags '-s -w -X sluice/agent/version.version=$(VERSION)'
GOFILES = $(shell find . -name '*.go' -not -path './.cache/*')
SOURCES = $(GOFILES) go.mod go.sum
ARCHES = amd64 arm64 armv7 armv6 riscv64

.PHONY: build
build: bin/sluice ## build bin/sluice for this machine

bin/sluice: $(SOURCES) .cache/slim.mod .cache/version
	$(GOBUILD) -o $@ .

.PHONY: cross
cross: $(ARCHES:%=dist/sluice-%) ## build dist/sluice-ARCH, static, stripped and reproducible

dist/sluice-arm%: $(SOURCES) .cache/slim.mod .cache/version
	GOOS=linux GOARCH=$(if $(filter 64,$*),arm64,arm) GOARM=$(patsubst v%,%,$(filter v%,$*)) $(GOBUILD) -o $@ .

dist/sluice-%: $(SOURCES) .cache/slim.mod .cache/version
	GOOS=linux GOARCH=$* $(GOBUILD) -o $@ .

# What is built anew when the version is another.
.cache/version: always
	@mkdir -p $(@D)
	@echo '$(VERSION)' | cmp -s - $@ || echo '$(VERSION)' >$@

.PHONY: always
always:

RELEASE_FILES = install.sh systemd/sluice.service systemd/sluice.openrc systemd/sluice.logrotate systemd/sluice-modules.conf systemd/sluice-sysctl.conf

.PHONY: release
release: build cross ## put all files of a release into dist: binaries, hashes, installer, units, man page, licences
	.ci/embed --check
	cp LICENSE $(RELEASE_FILES) dist/
	.ci/licences >dist/LICENSES.txt
	.ci/man bin/sluice >dist/sluice.8
	cd dist && for arch in $(ARCHES); do \
		sha256sum sluice-$$arch >sha256sum-$$arch.txt && go version -m sluice-$$arch >modules-$$arch.txt || exit 1; \
	done

.cache/slim.mod: .ci/slim .ci/deps go.mod go.sum
	.ci/deps go
	.ci/slim

.PHONY: test
test: ## run all tests, with real packets in network namespaces
	.ci/deps go nft ip conntrack iptables unshare busybox curl wget
	go mod download
	.ci/as-root go test -count=1 -timeout 30m ./...

FUZZTIME = 10m
.PHONY: fuzz
fuzz: ## try random inputs on every fuzz target, FUZZTIME each
	.ci/deps go
	.ci/fuzz $(FUZZTIME)

.PHONY: test-qemu
test-qemu: dist/sluice-arm64 dist/sluice-armv7 dist/sluice-armv6 ## run on ARM boards that QEMU emulates, a Pi Zero among them; QEMU= for some
	.ci/deps go qemu-system-arm depmod mke2fs
	go run ./test/qemu $(QEMU)

.PHONY: test-install
test-install: release ## install, reboot, cut the power, upgrade, uninstall: on an emulated machine with systemd; as root, an hour the first time
	.ci/deps go qemu-system-arm depmod debootstrap mke2fs ssh
	test/peers/build
	go run ./test/qemu/install

.PHONY: demo
demo: build ## show a node at work in throw-away network namespaces
	.ci/deps go nft ip unshare
	go run ./test/demo

.PHONY: bench
bench: build ## measure the agent and its parts: time, allocations, memory
	.ci/deps go nft ip iptables unshare
	go mod download
	.ci/as-root go run ./test/bench
	.ci/as-root go test -run '^$$' -bench . -benchmem -timeout 30m ./...

.PHONY: bench-peers
bench-peers: build ## measure the agent beside kube-proxy, on the same API server
	.ci/deps go nft ip
	go mod download
	test/peers/build
	.ci/as-root go run ./test/benchpeers

.PHONY: golden-update
golden-update: ## write the expected rule sets anew from what the kernel has
	.ci/deps go nft ip iptables unshare
	go mod download
	.ci/as-root go test -count=1 ./test/dataplane -run 'RuleSet$$' -update

.PHONY: lint
lint: ## check formatting, vet (32 bit, too), staticcheck, shellcheck
	.ci/deps go shellcheck
	@files=$$(gofmt -l $(GOFILES)); \
	if [ -n "$$files" ]; then echo "not formatted by gofmt:" $$files >&2; exit 1; fi
	go vet ./...
	GOARCH=arm go vet ./...
	go run $(STATICCHECK) ./...
	shellcheck .ci/* install.sh systemd/*.sh systemd/*.openrc

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist .cache

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16
