#!/bin/sh
# Installs sluice as a service of this machine, or brings an installed one up to date:
#
#     curl -sSfL https://github.com/sluice-proxy/sluice/releases/latest/download/install.sh | sh -
#
# usage, below, has all that can be told to it: "sh install.sh --help" prints it.

# In braces, a script that was cut off on its way is an error and does nothing.
{
set -euf

RELEASES=https://github.com/sluice-proxy/sluice/releases
DEFAULT_CONFIG=/etc/rancher/sluice/config.yaml

usage() {
	cat <<END
Installs sluice as a service of this machine, or brings an installed one up to date:

    curl -sSfL $RELEASES/latest/download/install.sh | sh -

Arguments are options of "sluice agent"; "agent" may stand in front of them:

    curl ... | sh -s - --cluster-cidr 10.42.0.0/16

They go into /etc/rancher/sluice/config.yaml.d/90-install.yaml, where all commands of sluice find them.

Environment variables:

  INSTALL_SLUICE_EXEC           options of "sluice agent", as the arguments; set but empty: forget the earlier ones
  INSTALL_SLUICE_VERSION        version to install, like v1.2.3 (default: the latest)
  INSTALL_SLUICE_URL            folder to download from, in place of the release page; a version is a folder in it
  INSTALL_SLUICE_SKIP_DOWNLOAD  true: use the program that is in place already
  INSTALL_SLUICE_SKIP_ENABLE    true: neither start it when the machine starts, nor now
  INSTALL_SLUICE_SKIP_START     true: do not start it now
  INSTALL_SLUICE_FORCE_RESTART  true: start it anew even if nothing changed
  INSTALL_SLUICE_FORCE          true: install although kube-proxy is at work here
  INSTALL_SLUICE_BIN_DIR        where the programs go (default: /usr/local/bin, or /opt/bin if that is read-only)
  INSTALL_SLUICE_SYSTEMD_DIR    where the systemd unit goes (default: /etc/systemd/system)
  SLUICE_*                      options of "sluice agent", as the arguments: SLUICE_CLUSTER_CIDR is --cluster-cidr

Options and folders that are not given stay as an earlier installation has them.
To take sluice away run sluice-uninstall.sh, which is beside the program.
END
}

info() { printf '[INFO]  %s\n' "$*"; }

warn() { printf '[WARN]  %s\n' "$*" >&2; }

fatal() {
	printf '[ERROR] %s\n' "$*" >&2
	exit 1
}

is_true() { [ "$1" = true ]; }

have() { command -v "$1" >/dev/null 2>&1; }

# as_root runs a program with root's rights.
as_root() {
	if [ -n "$SUDO" ]; then
		"$SUDO" -- "$@"
	else
		"$@"
	fi
}

# become_root finds out how to do what root may.
become_root() {
	SUDO=''
	[ "$(id -u)" -ne 0 ] || return 0
	have sudo || fatal "This must run as root: no sudo was found. Become root, by su for example, and run it again."
	SUDO=sudo
	as_root true || fatal "sudo does not let $(id -un) become root. Run this as root."
}

# read_words refuses arguments that cannot be the agent's.
read_words() {
	case ${1-} in
	'' | agent | -*) ;;
	help)
		usage
		exit 0
		;;
	uninstall) fatal "To take sluice away run \"sudo sluice-uninstall.sh\": it is beside the program, mostly in /usr/local/bin. Nothing was changed." ;;
	*) fatal "\"$1\" is nothing to install with: arguments are options of \"sluice agent\", like --cluster-cidr 10.42.0.0/16; --help tells more. Nothing was changed." ;;
	esac
	for arg in "$@"; do
		case $arg in
		-h | -help | --help)
			usage
			exit 0
			;;
		esac
	done
}

# names_of prints the names of the variables that begin with a prefix. In the output of env alone a further line of
# another variable's value can look like one.
names_of() {
	for name in $(env | sed -n "s/^\($1[A-Za-z0-9_]*\)=.*/\1/p"); do
		if eval "[ \"\${$name+set}\" ]"; then
			echo "$name"
		fi
	done
}

# is_forgotten tells whether options of an earlier installation are to go.
is_forgotten() { [ "${INSTALL_SLUICE_EXEC-unset}" = '' ]; }

# read_variables refuses switches that say neither yes nor no, and names variables that are none.
read_variables() {
	value=
	for name in SKIP_DOWNLOAD SKIP_ENABLE SKIP_START FORCE_RESTART FORCE; do
		eval "value=\${INSTALL_SLUICE_$name-}"
		case $value in
		true | yes | 1) eval "INSTALL_SLUICE_$name=true" ;;
		false | no | 0 | '') eval "INSTALL_SLUICE_$name=" ;;
		*) fatal "INSTALL_SLUICE_$name is \"$value\", and must be true or false. Nothing was changed." ;;
		esac
	done
	for name in $(names_of INSTALL_SLUICE_); do
		case ${name#INSTALL_SLUICE_} in
		EXEC | VERSION | URL | SKIP_DOWNLOAD | SKIP_ENABLE | SKIP_START | FORCE_RESTART | FORCE | BIN_DIR | SYSTEMD_DIR) ;;
		*) warn "$name is unknown and has no effect. \"sh install.sh --help\" prints the variables that there are." ;;
		esac
	done
}

# need_plain refuses what could not be written into a service file as it is.
need_plain() {
	case $2 in
	*[!][A-Za-z0-9_./:,=@+-]* | [!/]* | '')
		fatal "$1 \"$2\" must be an absolute path of plain characters, as it goes into the service's file. Nothing was changed."
		;;
	esac
}

# start_of prints the command in a service's file.
start_of() {
	case $1 in
	*.service) sed -n 's/^ExecStart=//p' "$1" ;;
	*) sed -n -e 's/^command=//p' -e 's/^command_args="\(.*\)"$/\1/p' "$1" | tr '\n' ' ' ;;
	esac
}

# program_of prints the program in a service's file.
program_of() {
	start=$(start_of "$1")
	echo "${start%% *}"
}

# uninstaller_of prints where the uninstaller is that belongs to a service's file.
uninstaller_of() {
	program=$(program_of "$1")
	echo "${program%/*}/sluice-uninstall.sh"
}

# options_of prints where an uninstaller has the options; nothing for one that knows no such file.
options_of() { sed -n 's/^INSTALL_CONFIG=//p' "$1"; }

same_file() { [ "$1" = "$2" ] || { [ -e "$2" ] && [ "$(readlink -f "$1")" = "$(readlink -f "$2")" ]; }; }

# find_units sets SERVICES to the units of earlier installations, the one that systemd takes first. In a directory that was
# not asked for it must be from this installer, not from a package: the uninstaller is beside its program.
find_units() {
	SERVICES=
	asked=${INSTALL_SLUICE_SYSTEMD_DIR:-/etc/systemd/system}
	loaded=$(systemctl show -p FragmentPath sluice.service 2>/dev/null | sed -n 's/^FragmentPath=//p')
	for dir in "${loaded%/*}" /etc/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system "$asked"; do
		unit=$dir/sluice.service
		case $unit in *[[:space:]]*) continue ;; esac
		for known in $SERVICES; do
			if same_file "$unit" "$known"; then
				continue 2
			fi
		done
		if [ -f "$unit" ] && { [ "$dir" = "$asked" ] || [ -f "$(uninstaller_of "$unit")" ]; }; then
			SERVICES="$SERVICES $unit"
		fi
	done
	SERVICES=${SERVICES# }
}

find_service_manager() {
	SYSTEMD_DIR=/etc/systemd/system
	if have systemctl; then
		MANAGER=systemd
		LOG="journalctl -u sluice"
		EXPORT=
		find_units
		OLD_SERVICE=${SERVICES%% *}
		[ -z "$OLD_SERVICE" ] || SYSTEMD_DIR=${OLD_SERVICE%/*}
		SYSTEMD_DIR=${INSTALL_SLUICE_SYSTEMD_DIR:-$SYSTEMD_DIR}
		need_plain INSTALL_SLUICE_SYSTEMD_DIR "$SYSTEMD_DIR"
		SERVICE_FILE=$SYSTEMD_DIR/sluice.service
		ENV_FILE=$SERVICE_FILE.env
		OLD_ENV_FILE=${OLD_SERVICE:-$SERVICE_FILE}.env
	elif [ -x /sbin/openrc-run ]; then
		MANAGER=openrc
		LOG=/var/log/sluice.log
		EXPORT='export '
		SERVICE_FILE=/etc/init.d/sluice
		ENV_FILE=/etc/conf.d/sluice
		OLD_ENV_FILE=$ENV_FILE
		OLD_SERVICE=
		[ ! -f "$SERVICE_FILE" ] || OLD_SERVICE=$SERVICE_FILE
		SERVICES=$OLD_SERVICE
	else
		fatal "Neither systemd nor OpenRC was found, and nothing else can run sluice as a service here. Run \"sluice agent\" by hand or from what starts your services."
	fi
}

# read_installed finds how an earlier installation starts the program, and where it has the options.
read_installed() {
	OLD_BIN=''
	OLD_ARGS=''
	OLD_INSTALL_CONFIG=''
	TAKE_VARIABLES=''
	[ -n "$OLD_SERVICE" ] || return 0
	OLD_BIN=$(program_of "$OLD_SERVICE")
	OLD_ARGS=$(start_of "$OLD_SERVICE")
	OLD_ARGS=${OLD_ARGS#* agent}
	script=$(uninstaller_of "$OLD_SERVICE")
	[ -f "$script" ] || return 0
	OLD_INSTALL_CONFIG=$(options_of "$script")
	# An installer that knew no such file put the options into the arguments and the environment of the service.
	[ -n "$OLD_INSTALL_CONFIG" ] || TAKE_VARIABLES=yes
}

# taken prints the lines of the service's environment that an earlier installer wrote, as NAME=value.
taken() {
	if [ -n "$TAKE_VARIABLES" ]; then
		as_root cat "$OLD_ENV_FILE" 2>/dev/null | sed -n "s/^$EXPORT\(SLUICE_[A-Z0-9_]*\)='\([^']*\)'\$/\1=\2/p"
	fi
}

# left prints its other lines.
left() {
	as_root cat "$OLD_ENV_FILE" 2>/dev/null | if [ -n "$TAKE_VARIABLES" ]; then
		sed "/^${EXPORT}SLUICE_[A-Z0-9_]*='[^']*'\$/d"
	else
		cat
	fi
}

# read_config sets CONFIG to the configuration file that arguments name, and OTHERS to the other arguments.
read_config() {
	OTHERS=
	before=
	for arg in "$@"; do
		case $before$arg in
		config:*) CONFIG=$arg ;;
		--config=* | -config=*) CONFIG=${arg#*=} ;;
		--config | -config) ;;
		*) OTHERS="$OTHERS $arg" ;;
		esac
		before=
		case $arg in --config | -config) before=config: ;; esac
	done
}

# set_config sets CONFIG to the configuration file that the agent is told of, and CONFIG_ARGS to how.
set_config() {
	CONFIG=$(taken | sed -n 's/^SLUICE_CONFIG=//p')
	# shellcheck disable=SC2086 # one word for each argument
	read_config $OLD_ARGS
	OLD_ARGS=$OTHERS
	! is_forgotten || CONFIG=
	CONFIG=${SLUICE_CONFIG:-$CONFIG}
	read_config "$@"
	CONFIG_ARGS=
	if [ -n "$CONFIG" ] && [ "$CONFIG" != "$DEFAULT_CONFIG" ]; then
		need_plain --config "$CONFIG"
		CONFIG_ARGS=" --config $CONFIG"
	fi
	CONFIG=${CONFIG:-$DEFAULT_CONFIG}
	INSTALL_CONFIG=$CONFIG.d/90-install.yaml
}

# make_dir makes a directory, and notes which ones it made.
make_dir() {
	above=$1
	while [ ! -d "$above" ]; do
		MISSING="$MISSING $above"
		above=${above%/*}
		above=${above:-/}
	done
	MADE="$MISSING $MADE" # the deepest first, as they are removed
	MISSING=
	as_root mkdir -p "$1"
}

# can_write tells whether root can make files in a directory.
can_write() {
	make_dir "$1" 2>/dev/null || return 1
	probe=$(as_root mktemp "$1/.sluice.XXXXXX" 2>/dev/null) || return 1
	as_root rm -f "$probe"
}

set_bin_dir() {
	BIN_DIR=${INSTALL_SLUICE_BIN_DIR:-${OLD_BIN%/*}}
	if [ -z "$BIN_DIR" ]; then
		BIN_DIR=/usr/local/bin
		if ! can_write "$BIN_DIR" && [ -d /opt/bin ]; then
			BIN_DIR=/opt/bin
		fi
	fi
	need_plain INSTALL_SLUICE_BIN_DIR "$BIN_DIR"
	case $BIN_DIR in
	*=*) fatal "INSTALL_SLUICE_BIN_DIR \"$BIN_DIR\" must have no \"=\": env and systemd would take the program's path for a variable. Nothing was changed." ;;
	esac
	can_write "$BIN_DIR" || fatal "Cannot write into $BIN_DIR: it cannot be made, or its file system is full or read-only. Nothing was changed. Set INSTALL_SLUICE_BIN_DIR to another directory."
	BIN=$BIN_DIR/sluice
}

# userland_bits is 32 on a system of 32-bit programs, whatever its kernel is.
userland_bits() {
	if getconf LONG_BIT 2>/dev/null; then
		return 0
	fi
	# The fifth byte of an ELF file is its class, see elf(5).
	case $(head -c 5 /bin/sh | tail -c 1) in
	"$(printf '\001')") echo 32 ;;
	*) echo 64 ;;
	esac
}

set_arch() {
	machine=$(uname -m)
	case $machine-$(userland_bits) in
	x86_64-64 | amd64-64) ARCH=amd64 ;;
	aarch64-64 | arm64-64) ARCH=arm64 ;;
	# A system for 32-bit programs may have a 64-bit kernel, as Raspberry Pi OS has.
	aarch64-32 | arm64-32 | armv8*-* | armv7*-*) ARCH=armv7 ;;
	armv6*-*) ARCH=armv6 ;;
	riscv64-64) ARCH=riscv64 ;;
	*) fatal "There is no sluice for this machine: $machine with $(userland_bits)-bit programs. There is one for x86_64, aarch64, armv7l, armv6l and riscv64." ;;
	esac
}

# kube_proxy_signs prints what shows that kube-proxy is at work here.
kube_proxy_signs() {
	set +f
	for comm in /proc/[0-9]*/comm; do
		name=
		{ read -r name <"$comm"; } 2>/dev/null || true
		if [ "$name" = kube-proxy ]; then
			pid=${comm#/proc/}
			echo "process ${pid%/comm}"
		fi
	done
	set -f
	if [ -d /sys/class/net/kube-ipvs0 ]; then
		echo "interface kube-ipvs0"
	fi
	# Where k3s keeps its own iptables.
	PATH=$PATH:/usr/sbin:/sbin:/var/lib/rancher/k3s/data/current/bin/aux
	savers="iptables-save ip6tables-save"
	if grep -qs nat /proc/net/ip_tables_names; then
		savers="$savers iptables-legacy-save"
	fi
	for save in $savers; do
		if have "$save" && as_root "$(command -v "$save")" -t nat 2>/dev/null | grep -q '^:KUBE-SERVICES '; then
			echo "chain KUBE-SERVICES ($save -t nat)"
		fi
	done
	if have nft; then
		as_root "$(command -v nft)" list tables 2>/dev/null | grep -x 'table ip6\{0,1\} kube-proxy' || true
	fi
}

# check_kube_proxy sets KUBE_PROXY to what shows that it is at work here, and goes on only if sluice does not start beside it.
check_kube_proxy() {
	if have k3s || [ -d /etc/rancher/k3s ] || [ -d /var/lib/rancher/k3s ]; then
		if grep -rqs '^disable-kube-proxy: *"\{0,1\}true' /etc/rancher/k3s; then
			info "k3s was found, with its own kube-proxy switched off"
		else
			info "k3s was found. Its own kube-proxy must be off in the whole cluster: on each server put"
			info "    disable-kube-proxy: true"
			info "into /etc/rancher/k3s/config.yaml and restart k3s."
		fi
	fi
	KUBE_PROXY=$(kube_proxy_signs)
	[ -n "$KUBE_PROXY" ] || return 0
	KUBE_PROXY=$(printf '%s\n' "$KUBE_PROXY" | sed -e '1!s/^/, /' | tr -d '\n')
	if is_true "$INSTALL_SLUICE_FORCE"; then
		warn "kube-proxy is at work here, or was since this machine started: $KUBE_PROXY. INSTALL_SLUICE_FORCE is true: going on."
	elif is_left; then
		warn "kube-proxy is at work here, or was since this machine started: $KUBE_PROXY. Switch it off before sluice is started."
	else
		fatal "kube-proxy is at work here, or was since this machine started: $KUBE_PROXY. Two proxies hinder each other." \
			"Switch it off (k3s: disable-kube-proxy: true in /etc/rancher/k3s/config.yaml of each server), restart this machine, which also removes its rules, and run this again." \
			"Without a restart of the machine: install with INSTALL_SLUICE_SKIP_START=true, run \"sluice cleanup --kube-proxy\", and run this again." \
			"INSTALL_SLUICE_FORCE=true installs and starts sluice nevertheless."
	fi
}

# What happens to files: each is written in full beside its place (stage), and only when all
# are there do they move to it (commit). Those that are no longer needed go with that. Until "finished" the exit puts back what was.
STAGED=''
REMOVED=''
MADE=''
MISSING=''
TMP=''
COMMITTING=''
finished=''

leave() {
	code=$?
	trap - EXIT
	if [ -n "$finished" ]; then
		forget
	else
		put_back
		[ -z "$COMMITTING" ] || [ "$MANAGER" != systemd ] || as_root systemctl daemon-reload || true
	fi
	if [ -n "$TMP" ]; then
		rm -rf "$TMP"
	fi
	exit $code
}

# forget removes what is needed to put back, also what a run that was cut off left of the program.
forget() {
	for file in "$BIN" $STAGED; do
		as_root rm -f "$file.sluice-old" "$file.sluice-new"
		case $file in # of a removed one; there may be other files
		*/90-install.yaml) as_root rmdir "${file%/*}" 2>/dev/null || true ;;
		esac
	done
}

put_back() {
	for file in $STAGED; do
		as_root rm -f "$file.sluice-new"
		if [ -n "$COMMITTING" ] && [ -e "$file.sluice-old" ]; then
			as_root mv -f "$file.sluice-old" "$file"
		elif [ -n "$COMMITTING" ]; then
			as_root rm -f "$file"
		fi
	done
	for dir in $MADE; do # those that others have put something into stay
		as_root rmdir "$dir" 2>/dev/null || true
	done
}

# stage FILE MODE takes standard input for FILE, unless it is there already.
stage() {
	dir=${1%/*}
	make_dir "$dir" || fatal "Cannot make the directory $dir (see above). Nothing was changed."
	STAGED="$STAGED $1"
	# shellcheck disable=SC2016 # for the inner shell
	as_root sh -c 'cat >"$1" && chmod "$2" "$1"' sh "$1.sluice-new" "$2" ||
		fatal "Cannot write into $dir (see above): it is full or read-only. Nothing was changed."
	if as_root cmp -s "$1" "$1.sluice-new"; then
		as_root rm -f "$1.sluice-new" "$1.sluice-old" # the second is of a run that was cut off
		STAGED=${STAGED% "$1"}
	fi
}

# stage_removal FILE takes a file of an earlier installation away, if there is one.
stage_removal() {
	if ! as_root test -e "$1" || is_new "$1"; then
		return 0
	fi
	if ! can_write "${1%/*}"; then
		warn "$1 is of the earlier installation and cannot be removed: its file system is full or read-only"
		return 0
	fi
	info "$1, of the earlier installation, goes"
	STAGED="$STAGED $1"
	REMOVED="$REMOVED $1"
}

# is_among WORD LIST: each word of the list has a blank in front.
is_among() {
	case "$2 " in
	*" $1 "*) ;;
	*) return 1 ;;
	esac
}

# is_new tells whether a file is about to change, or has.
is_new() { is_among "$1" "$STAGED"; }

commit() {
	[ -n "$STAGED" ] || return 0
	sync # a name must not outlive a power cut without its contents
	for file in $STAGED; do
		as_root rm -f "$file.sluice-old"
		if [ -e "$file" ]; then
			as_root ln "$file" "$file.sluice-old"
		fi
	done
	COMMITTING=yes
	for file in $STAGED; do
		if is_among "$file" "$REMOVED"; then
			as_root rm -f "$file"
		else
			as_root mv -f "$file.sluice-new" "$file"
		fi || fatal "Cannot replace $file (see above). What was changed is put back."
	done
	sync
}

hash_of() { as_root sha256sum "$1" 2>/dev/null | cut -d ' ' -f 1; }

fetch() {
	# Who begins with HTTPS is not sent on to where anybody between could change file and hash together.
	case $1 in https://*) onward='=https' ;; *) onward='=http,https' ;; esac
	case $DOWNLOADER in
	curl) curl -fsSL --proto-redir "$onward" --connect-timeout 20 --retry 2 -o "$2" "$1" 2>"$TMP/error" ;;
	wget) wget -O "$2" "$1" 2>"$TMP/error" ;; # busybox knows few options
	esac || fatal "Cannot download $1: $(grep -v '^ *$' "$TMP/error" | tail -n 1). Nothing was changed."
}

# download stages the program, unless the same is in place.
download() {
	if have curl; then
		DOWNLOADER=curl
	elif have wget; then
		DOWNLOADER=wget
	else
		fatal "Neither curl nor wget was found. Install one, or put the program at $BIN and set INSTALL_SLUICE_SKIP_DOWNLOAD=true."
	fi
	have sha256sum || fatal "sha256sum was not found, so that a download cannot be checked. It is part of coreutils and of busybox."
	version=${INSTALL_SLUICE_VERSION:-}
	if [ -n "${INSTALL_SLUICE_URL:-}" ]; then
		url=${INSTALL_SLUICE_URL%/}${version:+/$version}
	elif [ -n "$version" ]; then
		url=$RELEASES/download/$version
	else
		url=$RELEASES/latest/download
	fi
	info "Release: $url"
	fetch "$url/sha256sum-$ARCH.txt" "$TMP/hashes"
	want=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]sluice-$ARCH\$/\1/p" "$TMP/hashes")
	[ -n "$want" ] || fatal "$url/sha256sum-$ARCH.txt has no hash of sluice-$ARCH: this is no release of sluice. Nothing was changed."
	if [ -f "$BIN" ] && [ "$(hash_of "$BIN")" = "$want" ]; then
		info "$BIN is this version already"
		PROGRAM=$BIN
		return 0
	fi
	info "Downloading sluice-$ARCH"
	fetch "$url/sluice-$ARCH" "$TMP/sluice"
	got=$(hash_of "$TMP/sluice")
	[ "$got" = "$want" ] || fatal "The download has another SHA-256 sum ($got) than it must have ($want): it is damaged, or the release changed meanwhile. Nothing was changed; try again."
	stage "$BIN" 755 <"$TMP/sluice"
	PROGRAM=$BIN.sluice-new
	version=$("$PROGRAM" version 2>&1) || fatal "The program does not run on this machine: $version. Nothing was changed."
}

use_program_in_place() {
	[ -x "$BIN" ] || fatal "INSTALL_SLUICE_SKIP_DOWNLOAD is true, but $BIN is missing or not executable. Put the program for $ARCH there first, with mode 755."
	PROGRAM=$BIN
	version=$("$BIN" version 2>&1) || fatal "$BIN does not run on this machine: $version. It must be sluice-$ARCH."
}

# write_options WHICH ARGUMENT... lets the new program check options, and write them into $TMP/config.
write_options() {
	which=$1
	shift
	if ! as_root env "$@" --write-config-to "$TMP/config" >"$TMP/said" 2>&1; then
		fatal "$which cannot be used: $(sed -e 's/^sluice: //' -e 's/[^.]$/&./' "$TMP/said" | tr '\n' ' ')Nothing was changed."
	fi
	while read -r line; do
		warn "${line#sluice: }"
	done <"$TMP/said"
}

# write_earlier_options takes over those that an earlier installer kept in the service's file and its environment.
# It runs apart from this shell, whose variables are given now: they come later and win.
write_earlier_options() (
	for name in $(names_of SLUICE_); do
		unset "$name"
	done
	# shellcheck disable=SC2086 # one word for each argument
	set -- "$PROGRAM" agent $CONFIG_ARGS $OLD_ARGS
	while IFS= read -r line; do
		set -- "$line" "$@"
	done <"$TMP/variables"
	write_options "The earlier installation's options, which INSTALL_SLUICE_EXEC forgets if it is set but empty," "$@"
)

# stage_config puts options into a file of the configuration.
stage_config() {
	: >"$TMP/config"
	if ! is_forgotten; then
		if [ -f "${OLD_INSTALL_CONFIG:-$INSTALL_CONFIG}" ]; then
			as_root cat "${OLD_INSTALL_CONFIG:-$INSTALL_CONFIG}" >"$TMP/config"
		fi
		taken | sed '/^SLUICE_CONFIG=/d' >"$TMP/variables"
		if [ -n "$OLD_ARGS" ] || [ -s "$TMP/variables" ]; then
			write_earlier_options || exit 1
		fi
	fi
	# shellcheck disable=SC2086 # one word for each argument
	set -- "$PROGRAM" agent $CONFIG_ARGS "$@"
	# sudo keeps none of these.
	for name in $(names_of SLUICE_); do
		eval "value=\${$name-}"
		set -- "$name=$value" "$@"
	done
	write_options "The options" "$@"
	if [ -s "$TMP/config" ] || [ -f "$INSTALL_CONFIG" ]; then
		{
			echo "# Options that install.sh was given. It changes those that it is given again."
			grep -v '^#' "$TMP/config" || true
		} >"$TMP/file"
		stage "$INSTALL_CONFIG" 644 <"$TMP/file"
	fi
}

# stage_environment leaves in the service's environment what this installer did not write, and says what wins over
# options that are given now. A file that is at the new place of the unit already is not this installer's.
stage_environment() {
	left >"$TMP/file"
	if ! grep -q '[^[:space:]]' "$TMP/file"; then
		: >"$TMP/file"
	fi
	if ! same_file "$OLD_ENV_FILE" "$ENV_FILE" && as_root test -e "$ENV_FILE"; then
		if [ -s "$TMP/file" ] && ! as_root cmp -s "$TMP/file" "$ENV_FILE"; then
			[ -z "$TAKE_VARIABLES" ] || stage "$OLD_ENV_FILE" 600 <"$TMP/file"
			warn "$ENV_FILE was there before, and stays as it is. $OLD_ENV_FILE stays, too, but is read no more: move what you need of it, restart sluice, and delete it."
		else
			stage_removal "$OLD_ENV_FILE"
		fi
		as_root cat "$ENV_FILE" >"$TMP/file"
	elif [ -n "$TAKE_VARIABLES" ] || ! same_file "$OLD_ENV_FILE" "$ENV_FILE"; then
		if [ -s "$TMP/file" ]; then
			stage "$ENV_FILE" 600 <"$TMP/file"
		fi
		if [ ! -s "$TMP/file" ] || ! same_file "$OLD_ENV_FILE" "$ENV_FILE"; then
			stage_removal "$OLD_ENV_FILE"
		fi
	fi
	given=$(names_of SLUICE_)
	for arg in "$@"; do
		case $arg in
		-*) given="$given SLUICE_$(printf %s "$arg" | sed -e 's/^-*//' -e 's/=.*//' -e 1q | tr 'a-z-' 'A-Z_')" ;;
		esac
	done
	for name in $given; do
		if grep -q "^[[:space:]]*\(export[[:space:]]\{1,\}\)\{0,1\}$name=" "$TMP/file"; then
			warn "$ENV_FILE sets $name, and wins over what is given now for this option. Take the line out, and restart sluice."
		fi
	done
}

# stage_removals takes away what earlier installations have elsewhere.
stage_removals() {
	for service in $SERVICES; do
		program=$(program_of "$service")
		script=$(uninstaller_of "$service")
		if [ -f "$script" ]; then
			config=$(options_of "$script")
			[ -z "$config" ] || same_file "$config" "$INSTALL_CONFIG" || stage_removal "$config"
			if ! same_file "$program" "$BIN"; then
				stage_removal "$program"
				stage_removal "$script"
			fi
		fi
		same_file "$service" "$SERVICE_FILE" || stage_removal "$service"
	done
	# An earlier installer left its program behind when that got another directory: no service leads there any more.
	for dir in /usr/local/bin /opt/bin; do
		if ! same_file "$dir" "$BIN_DIR" && as_root grep -qsx "BIN_DIR=$dir" "$dir/sluice-uninstall.sh"; then
			stage_removal "$dir/sluice"
			stage_removal "$dir/sluice-uninstall.sh"
		fi
	done
}

# stage_files stages all but the program.
stage_files() {
	case $MANAGER in
	systemd)
		systemd_unit | sed -e "s|^ExecStart=.*|ExecStart=$BIN agent$CONFIG_ARGS|" \
			-e "s|^EnvironmentFile=.*|EnvironmentFile=-$ENV_FILE|" >"$TMP/file"
		stage "$SERVICE_FILE" 644 <"$TMP/file"
		;;
	openrc)
		openrc_service | sed -e "s|^command=.*|command=$BIN|" -e "s|^command_args=.*|command_args=\"agent$CONFIG_ARGS\"|" >"$TMP/file"
		stage "$SERVICE_FILE" 755 <"$TMP/file"
		log_rotation >"$TMP/file"
		stage /etc/logrotate.d/sluice 644 <"$TMP/file"
		;;
	esac

	parameters >"$TMP/file"
	stage /etc/sysctl.d/90-sluice.conf 644 <"$TMP/file"
	# systemd counts a module that is not there as a failure.
	modules | while read -r module; do
		if case $module in '#'*) ;; *) as_root modprobe -nq "$module" </dev/null 2>/dev/null ;; esac; then
			echo "$module"
		fi
	done >"$TMP/modules"
	stage /etc/modules-load.d/sluice.conf 644 <"$TMP/modules"

	uninstaller | sed -e "s|^BIN_DIR=.*|BIN_DIR=$BIN_DIR|" -e "s|^SYSTEMD_DIR=.*|SYSTEMD_DIR=$SYSTEMD_DIR|" \
		-e "s|^INSTALL_CONFIG=.*|INSTALL_CONFIG=$INSTALL_CONFIG|" >"$TMP/file"
	stage "$BIN_DIR/sluice-uninstall.sh" 755 <"$TMP/file"
}

uninstaller() {
	cat <<'END systemd/sluice-uninstall.sh'
#!/bin/sh
# Takes sluice away from this machine: service, rules, cache, configuration and program.
{
BIN_DIR=/usr/local/bin
SYSTEMD_DIR=/etc/systemd/system
INSTALL_CONFIG=/etc/rancher/sluice/config.yaml.d/90-install.yaml

for arg in "$@"; do
	case $arg in
	-h | -help | --help | help)
		echo "Usage: sluice-uninstall.sh"
		echo "Takes sluice away from this machine: service, rules, cache, configuration and program. It has no options."
		exit 0
		;;
	esac
done
if [ $# -gt 0 ]; then
	echo "[ERROR] \"$1\" is unknown: sluice-uninstall.sh has no options, and takes sluice away at once. Nothing was changed." >&2
	exit 2
fi

if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null; then
		exec sudo -- "$0" "$@"
	fi
	echo "[ERROR] This must run as root: no sudo was found. Become root, by su for example, and run it again. Nothing was changed." >&2
	exit 1
fi
code=0

if command -v systemctl >/dev/null; then
	systemctl disable --now sluice
	systemctl reset-failed sluice 2>/dev/null
fi
if [ -f /etc/init.d/sluice ]; then
	rc-service sluice stop
	rc-update delete sluice boot
fi

# The agent leaves its rules when it stops.
if ! "$BIN_DIR/sluice" cleanup; then
	echo "[ERROR] Rules of sluice may be left in the kernel (see above). They are gone when the machine starts next." >&2
	code=1
fi

# take_away removes files, and what an installation that was cut off left beside them.
take_away() {
	for file in "$@"; do
		rm -rf "$file" "$file.sluice-old" "$file.sluice-new"
	done
}
take_away "$SYSTEMD_DIR/sluice.service" "$SYSTEMD_DIR/sluice.service.env" "$SYSTEMD_DIR/sluice.service.d"
take_away /etc/systemd/system/sluice.service.d # where "systemctl edit" writes, wherever the unit is
take_away /etc/init.d/sluice /etc/conf.d/sluice /etc/logrotate.d/sluice
rm -f /var/log/sluice.log*
if command -v systemctl >/dev/null; then
	systemctl daemon-reload
fi
take_away /etc/modules-load.d/sluice.conf /etc/sysctl.d/90-sluice.conf "$INSTALL_CONFIG"
rmdir "${INSTALL_CONFIG%/*}" 2>/dev/null # there may be other files
take_away /var/lib/sluice /run/sluice /etc/rancher/sluice
rmdir /etc/rancher 2>/dev/null # k3s keeps its configuration there, too
take_away "$BIN_DIR/sluice" "$BIN_DIR/sluice-uninstall.sh"
echo "Kernel parameters stay as they are until this machine starts next: other programs may need them by now."
exit $code
}
END systemd/sluice-uninstall.sh
}

systemd_unit() {
	cat <<'END systemd/sluice.service'
[Unit]
Description=sluice, the Kubernetes Service proxy of this node
Documentation=https://github.com/sluice-proxy/sluice
# The rules come from the cache, so nothing is waited for: no network, no API server, no k3s.
# Without the default dependencies this starts beside the rest of sysinit.target, and nothing
# waits for it either: multi-user.target is not ordered behind such a unit, so that a node
# that has no cache yet and cannot reach its API server still boots to the end.
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
After=local-fs.target systemd-modules-load.service systemd-sysctl.service
# These clear the kernel's rules, or replace them, when they start.
After=nftables.service iptables.service netfilter-persistent.service ufw.service
# Never give up: without the proxy a node has no Services.
StartLimitIntervalSec=0

[Service]
# Ready is when the rules are in the kernel. With an empty cache that takes until the API server
# answers, however long that is.
Type=notify
TimeoutStartSec=infinity
WatchdogSec=60
ExecStart=/usr/local/bin/sluice agent
EnvironmentFile=-/etc/systemd/system/sluice.service.env
Restart=always
RestartSec=5
# Only the agent is told to stop: an iptables-restore that it runs gets to its end.
KillMode=mixed
TimeoutStopSec=30

StateDirectory=sluice
StateDirectoryMode=0700
RuntimeDirectory=sluice
UMask=0077

# 10,000 Services with 10 endpoints each reach 100 MB at a start, with the kernel's memory for their rules (15 MB).
MemoryMax=256M
Environment=GOMEMLIMIT=192MiB
TasksMax=256
# What Services can make it open takes less than half of it, see agent/descriptors.go.
LimitNOFILE=32768
# Its memory holds the keys of the kubeconfig.
LimitCORE=0
OOMScoreAdjust=-500

# CAP_NET_ADMIN: rules, connection tracking, parameters below net.
# CAP_NET_RAW: the iptables programs of old systems (iptables-legacy) open a raw socket.
# CAP_NET_BIND_SERVICE: a cluster can have NodePorts below 1024; at 127.0.0.1 the agent listens on them.
# It runs as root, without root's other powers, as k3s's kubeconfig and keys are for root alone.
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE
NoNewPrivileges=yes

ProtectSystem=strict
# The lock that all iptables programs share. It must exist to be made writable.
ReadWritePaths=-/run/xtables.lock
ExecStartPre=+-/bin/touch -a /run/xtables.lock
# Not "yes": manifests or a kubeconfig may be in a home directory.
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
# Not PrivateNetwork, PrivateUsers, IPAddressDeny: it is the host's network that is programmed.
# Not ProtectKernelTunables: the agent sets net.ipv4.ip_forward, net.netfilter.nf_conntrack_max and others.
# Not ProcSubset=pid: these are in /proc/sys, and interfaces in /proc/net.
ProtectProc=invisible
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
KeyringMode=private
# The API server and NodePorts at 127.0.0.1, the kernel's rules, the status socket and systemd's.
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources @setuid @keyring
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
END systemd/sluice.service
}

openrc_service() {
	cat <<'END systemd/sluice.openrc'
#!/sbin/openrc-run
# The service for OpenRC. /etc/conf.d/sluice can export SLUICE_* variables.
# shellcheck shell=sh disable=SC2034 # OpenRC reads the variables

description="sluice, the Kubernetes Service proxy of this node"
supervisor=supervise-daemon
command=/usr/local/bin/sluice
command_args="agent"
respawn_delay=5
# Never give up: without the proxy a node has no Services.
respawn_max=0
error_log=/var/log/sluice.log
rc_ulimit="-n 32768 -c 0" # no core dumps: its memory holds the keys of the kubeconfig
umask=077

# The rules come from the cache, so that no network is waited for.
depend() {
	need localmount
	after modules sysctl iptables ip6tables nftables firewall
	before net
}

start_pre() {
	checkpath -d -m 0755 /run/sluice
	checkpath -d -m 0700 /var/lib/sluice
}
END systemd/sluice.openrc
}

log_rotation() {
	cat <<'END systemd/sluice.logrotate'
# For OpenRC, which has no journal.
/var/log/sluice.log {
	missingok
	notifempty
	copytruncate
	compress
	rotate 3
	size 1M
}
END systemd/sluice.logrotate
}

modules() {
	cat <<'END systemd/sluice-modules.conf'
# Modules that sluice uses. The kernel loads most by itself when they are needed, each by a process of its own: on a
# Raspberry Pi that takes 2 s longer at the start than to have them. It does not load br_netfilter (Services between
# pods on one bridge) nor ip_tables (iptables-legacy).
nf_tables
nft_chain_nat
nft_counter
nft_nat
nft_masq
nft_ct
nft_numgen
nft_fib_ipv4
nft_fib_ipv6
nft_reject_ipv4
nft_reject_ipv6
nf_conntrack
nf_conntrack_netlink
br_netfilter
ip_tables
ip6_tables
END systemd/sluice-modules.conf
}

parameters() {
	cat <<'END systemd/sluice-sysctl.conf'
# Parameters that Services need from the start. The agent sets these and others by itself: those
# that depend on the machine's memory, and forwarding of IPv6, which by itself would
# take the default route away from a node that has it by router advertisement.
net.ipv4.ip_forward = 1
# They exist only with the module br_netfilter.
-net.bridge.bridge-nf-call-iptables = 1
-net.bridge.bridge-nf-call-ip6tables = 1
END systemd/sluice-sysctl.conf
}

# prepare_kernel does now what happens by itself when the machine starts next.
prepare_kernel() {
	while read -r module; do
		case $module in
		'#'*) ;;
		*) as_root modprobe -q "$module" </dev/null 2>/dev/null || warn "The kernel module $module cannot be loaded now" ;;
		esac
	done <"$TMP/modules"
	as_root sysctl -q -p /etc/sysctl.d/90-sluice.conf >/dev/null 2>&1 || true # the agent sees to them, and says what fails
}

service_enable() {
	case $MANAGER in
	systemd)
		as_root systemctl daemon-reload
		case $REMOVED in
		*/sluice.service*) enable=reenable ;; # the links to it are to the old place
		*) enable=enable ;;
		esac
		is_true "$INSTALL_SLUICE_SKIP_ENABLE" || as_root systemctl "$enable" sluice
		;;
	openrc) is_true "$INSTALL_SLUICE_SKIP_ENABLE" || as_root rc-update add sluice boot ;;
	esac
}

service_is_active() {
	case $MANAGER in
	systemd) as_root systemctl is-active --quiet sluice ;;
	openrc) as_root rc-service --quiet sluice status ;;
	esac >/dev/null 2>&1
}

# service_restart starts the service anew, behind service_enable, and tells whether it stays up.
service_restart() {
	case $MANAGER in
	openrc)
		as_root rc-service sluice restart || return 1
		sleep 2
		service_is_active
		;;
	systemd)
		as_root systemctl reset-failed sluice 2>/dev/null || true
		# Ready is when the rules are in the kernel, for which a new node needs its API server.
		as_root systemctl restart --no-block sluice || return 1
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			sleep 1
			case $(as_root systemctl show -p ActiveState -p SubState sluice | sort | tr '\n' ' ') in
			*=active\ *) return 0 ;;
			*=failed\ * | *=auto-restart\ *) return 1 ;;
			esac
		done
		info "sluice runs, and waits: $(as_root systemctl show -p StatusText sluice | sed 's/^StatusText=//')"
		;;
	esac
}

start() {
	if is_left; then
		return 0
	fi
	changed=$REMOVED
	for file in "$BIN" "$SERVICE_FILE" "$INSTALL_CONFIG"; do
		if is_new "$file"; then
			changed=yes
		fi
	done
	if [ -z "$changed" ] && ! is_true "$INSTALL_SLUICE_FORCE_RESTART" && service_is_active; then
		info "Nothing changed: sluice goes on running"
		return 0
	fi
	prepare_kernel
	info "Starting sluice" # the rules of one that runs stay in the kernel meanwhile
	if service_restart; then
		return 0
	fi
	if [ -z "$OLD_BIN" ] || [ -z "$changed" ]; then
		fatal "sluice is installed but does not start; $LOG tells why. $BIN_DIR/sluice-uninstall.sh takes it away."
	fi
	put_back
	service_enable
	service_restart || warn "The earlier version does not start either."
	fatal "The new version, or its arguments, did not start; $LOG tells why. The earlier one is back in place."
}

# is_left tells whether the service is not to be started.
is_left() { is_true "$INSTALL_SLUICE_SKIP_ENABLE" || is_true "$INSTALL_SLUICE_SKIP_START"; }

# tell_next says what can be done now.
tell_next() {
	if ! is_left; then
		info "\"sudo $BIN status\" tells how it is, \"sudo $BIN_DIR/sluice-uninstall.sh\" takes it away"
		return 0
	fi
	if [ -n "$KUBE_PROXY" ] && ! is_true "$INSTALL_SLUICE_SKIP_ENABLE"; then
		info "It was not started. Switch kube-proxy off and restart this machine: that takes its rules away, and starts sluice"
		return 0
	fi
	case $MANAGER-$INSTALL_SLUICE_SKIP_ENABLE in
	systemd-true) next="systemctl enable --now sluice" ;;
	systemd-*) next="systemctl start sluice" ;;
	openrc-true) next="rc-update add sluice boot && sudo rc-service sluice start" ;;
	openrc-*) next="rc-service sluice start" ;;
	esac
	info "It was not started. \"sudo $BIN check\" tells whether it can work here, \"sudo $next\" starts it"
}

main() {
	[ "$(uname -s)" = Linux ] || fatal "sluice needs Linux: it programs its packet filter."
	# shellcheck disable=SC2086 # one word for each argument
	set -- ${INSTALL_SLUICE_EXEC-} "$@"
	read_words "$@"
	[ "${1-}" != agent ] || shift
	read_variables
	become_root
	find_service_manager
	read_installed
	set_config "$@"
	set_arch
	trap leave EXIT
	trap 'exit 1' HUP INT TERM
	set_bin_dir
	check_kube_proxy

	TMP=$(mktemp -d) || fatal "Cannot make a temporary directory. Set TMPDIR to a directory with 50 MB of free space."
	if is_true "$INSTALL_SLUICE_SKIP_DOWNLOAD"; then
		use_program_in_place
	else
		download
	fi
	stage_config "$@"
	stage_environment "$@"
	stage_files
	stage_removals
	commit
	service_enable
	finished=yes
	start
	info "Installed: $("$BIN" version)"
	tell_next
}

main "$@"
}
