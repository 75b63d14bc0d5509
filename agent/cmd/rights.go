package cmd

import (
	"errors"

	"golang.org/x/sys/unix"
)

// needNetAdmin is an error if this process may not change the network's rules. Such rights do not come later.
func needNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // of 32 capabilities each, see capget(2)
	if err := unix.Capget(&header, &data[0]); err != nil || data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0 {
		return nil // what cannot be told is tried
	}
	return errors.New("this needs root or CAP_NET_ADMIN; run it as root, by sudo for example")
}
