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
