#!/bin/bash
# Install the system packages that dayone's make targets need: only what is missing, with apt-get or dnf, saying what and why.
#
#   hack/setup/setup.sh [--check] build|demo|test|vm|release ...
#
# demo and release include build; test and vm include demo. --check installs nothing: it prints what is missing and exits with 1.
# Exit codes: 0 all there, 1 something is missing or cannot be installed, 2 wrong call or unknown distribution.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")

# group | how to see that it is there | Debian package | Fedora package | why
# How: a program; /file; module:NAME for python3; cni for network plugins and browser for Chromium, which each distribution puts elsewhere.
requirements() {
    cat <<'TABLE'
build|gcc|gcc|gcc|the image builder links C code
build|/usr/include/stdio.h|libc6-dev|glibc-devel|headers for it
build|make|make|make|runs the targets
build|git|git|git|versions the binaries
build|/etc/ssl/certs|ca-certificates|ca-certificates|Go fetches modules over TLS
release|aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu|gcc-aarch64-linux-gnu|links C code for arm64
release|/usr/aarch64-linux-gnu/lib/libc.a|libc6-dev-arm64-cross|gcc-aarch64-linux-gnu|the static C library for it, which Debian alone has
demo|ip|iproute2|iproute|networks of the test hosts
demo|nsenter|util-linux|util-linux|runs the bootstrap host on that network
demo|ostree|ostree|ostree|the masters' deployments
demo|/usr/lib/dracut/modules.d/30ignition/ignition|ignition|ignition|applies the served config to a master before its first boot
demo|useradd|passwd|shadow-utils|Ignition makes users with it
demo|busybox|busybox-static|busybox|the tiny base image and its shell
demo|ldd|libc-bin|glibc-common|finds the libraries that go into the tiny base image
demo|mmdebstrap|mmdebstrap|mmdebstrap|makes the default base image
demo|/usr/share/keyrings/debian-archive-keyring.gpg|debian-archive-keyring|debian-keyring|verifies the packages in it
test|systemctl|systemd|systemd|tells what a unit's enablement means
test|skopeo|skopeo|skopeo|a second opinion on images and registries
test|tar|tar|tar|unpacks layers in tests
test|buildah|buildah|buildah|the peer that the build engine is measured against
test|podman|podman|podman|logs in to, pushes to and pulls from the registry; renders on the openshift flow's bootstrap node
test|conmon|conmon|conmon|keeps podman's containers
test|/usr/share/containers/seccomp.json|golang-github-containers-common|containers-common|what podman forbids its containers
test|runc|runc|runc|RUN in containers of their own, which alone can be cut off the network; podman's on the bootstrap node
test|containerd|containerd|containerd|runs the pods of the test cluster
test|ctr|containerd|containerd|pulls the image that holds a pod's namespaces
test|cni|containernetworking-plugins|containernetworking-plugins|network of pods
test|crun|crun|crun|another runtime, which the build engine tries before it relies on it
test|rpmbuild|rpm|rpm-build|makes the packages of the tests' extensions
test|createrepo_c|createrepo-c|createrepo_c|makes a repository of them
test|dnf|dnf|dnf|installs them in a build
test|qemu-aarch64-static|qemu-user-static|qemu-user-static|runs what is made for other architectures
test|aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu|gcc-aarch64-linux-gnu|links one of them
test|/usr/aarch64-linux-gnu/lib/libc.a|libc6-dev-arm64-cross|gcc-aarch64-linux-gnu|the static C library for it, which Debian alone has
test|nft|nftables|nftables|the gate of the openshift flow's bootstrap node
test|curl|curl|curl|reads the status page as an admin does
test|ssh-keygen|openssh-client|openssh|the key that assisted-installer makes on a host
test|/usr/bin/aws|awscli|awscli2|types what a page says of clouds, to a played one
test|virt-install|virtinst|virt-install|the same of libvirt, to the driver for tests that libvirt has
test|newuidmap|uidmap|shadow-utils|builds of an ordinary user
test|browser|chromium-headless-shell|chromium|draws the HTML report of a log bundle
vm|qemu-system-x86_64|qemu-system-x86|qemu-system-x86-core|runs the virtual machine
vm|mkfs.ext4|e2fsprogs|e2fsprogs|makes its disk
test|module:yaml|python3-yaml|python3-pyyaml|compares rendered configs with recorded ones
TABLE
}

say() { echo "setup: $*" >&2; }

# present HOW: is it there? System directories count even when PATH lacks them, as it does for users on Debian.
present() {
    case $1 in
    /*) [ -e "$1" ] ;;
    cni) [ -e /usr/lib/cni/bridge ] || [ -e /usr/libexec/cni/bridge ] || [ -e /opt/cni/bin/bridge ] ;;
    browser) command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v chromium-browser >/dev/null ;;
    module:*) python3 -c "import ${1#module:}" 2>/dev/null ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
    esac
}

# included GROUP WANTED: does WANTED include GROUP?
included() {
    case $2 in
    build) [ "$1" = build ] ;;
    demo) [ "$1" = build ] || [ "$1" = demo ] ;;
    release) [ "$1" = build ] || [ "$1" = release ] ;;
    test) [ "$1" != vm ] && [ "$1" != release ] ;;
    vm) [ "$1" != test ] && [ "$1" != release ] ;;
    esac
}

# missing WANTED...: lines of "Debian package|Fedora package|why" for what is not there.
missing() {
    local group how deb rpm why wanted
    while IFS='|' read -r group how deb rpm why; do
        for wanted in "$@"; do
            if included "$group" "$wanted"; then
                present "$how" || echo "$deb|$rpm|$why"
                break
            fi
        done
    done < <(requirements)
}

# family: which package manager this distribution has, by its own description of itself.
family() {
    local ID='' ID_LIKE=''
    # shellcheck disable=SC1091
    [ ! -r /etc/os-release ] || . /etc/os-release
    case " $ID $ID_LIKE " in
    *" debian "* | *" ubuntu "*) echo debian ;;
    *" fedora "* | *" rhel "* | *" centos "*) echo fedora ;;
    *)
        say "unknown distribution '${ID:-no /etc/os-release}': neither Debian's family (apt-get) nor Fedora's (dnf)"
        say "install what 'hack/setup/setup.sh' lists in its table yourself, under your distribution's names"
        return 2
        ;;
    esac
}

# check_go: Go itself comes from its makers: distributions lag behind. Since 1.21 an older go fetches the version that go.mod names.
check_go() {
    local want have
    want=$(sed -n 's/^go \([0-9.]*\).*/\1/p' "$here/../../go.mod")
    if ! command -v go >/dev/null; then
        [ ! -x /usr/local/go/bin/go ] || { say "Go is in /usr/local/go/bin: put that into PATH"; return 1; }
        say "Go is missing: get $want or later from https://go.dev/dl/ and put its bin directory into PATH"
        return 1
    fi
    have=$(GOTOOLCHAIN=local GOFLAGS='' go env GOVERSION 2>/dev/null | sed 's/^go//')
    if [ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
        if [ "$(printf '%s\n' 1.21 "$have" | sort -V | head -n 1)" = 1.21 ] && [ "$(cd / && go env GOTOOLCHAIN)" != local ]; then
            say "Go $have is older than $want: it will fetch that version by itself"
            return 0
        fi
        say "Go $have is too old: get $want or later from https://go.dev/dl/"
        return 1
    fi
}

install_packages() { # FAMILY PACKAGE...
    local kind=$1
    shift
    if [ "$(id -u)" != 0 ]; then
        say "not root: as root run:  hack/setup/setup.sh ${groups[*]}"
        return 1
    fi
    if [ "$kind" = debian ]; then
        export DEBIAN_FRONTEND=noninteractive
        # Nothing but what is named: recommendations would bring boot loaders and dracut to this machine.
        apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@" >&2
    else
        dnf install -y --setopt=install_weak_deps=False "$@" >&2
    fi || {
        say "installing failed; the lines above say why. Without network, install these yourself: $*"
        return 1
    }
}

main() {
    local check='' status=0 kind lines deb rpm why packages=()
    groups=()
    for arg in "$@"; do
        case $arg in
        --check) check=1 ;;
        build | demo | test | vm | release) groups+=("$arg") ;;
        *)
            sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
            exit 2
            ;;
        esac
    done
    [ ${#groups[@]} -gt 0 ] || groups=(test)
    check_go || status=1
    lines=$(missing "${groups[@]}")
    if [ -n "$lines" ]; then
        kind=$(family) || exit 2
        while IFS='|' read -r deb rpm why; do
            [ "$kind" = debian ] || deb=$rpm
            say "missing: $deb: $why"
            packages+=("$deb")
        done <<<"$lines"
        if [ -n "$check" ]; then
            status=1
        elif ! install_packages "$kind" "${packages[@]}"; then
            status=1
        else
            lines=$(missing "${groups[@]}")
            [ -z "$lines" ] || { say "still missing after installing: ${lines//$'\n'/; }"; status=1; }
        fi
    fi
    exit $status
}

main "$@"
