// Package install tests install.sh and the uninstaller on machines that are copies of this one:
// what they write goes to memory. A systemctl that starts and ends processes stands for systemd.
package install
