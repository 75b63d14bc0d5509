package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// enteredEnv marks the copy of the process that runs in a namespace.
const enteredEnv = "SLUICE_LAB_ENTERED"

// Enter makes sure that this process may make network namespaces, and that it is in one of its own: what a test
// does by mistake outside those that it makes does not reach the machine. It is to be called first in main or TestMain. It
// runs the same program once more in a new network namespace, and where that needs it (not as root), as root of a user
// namespace; entered is then true, and the caller ends with the exit code. In that copy entered is false, and the
// caller goes on. An error says what is missing.
func Enter() (code int, entered bool, err error) {
	if os.Getenv(enteredEnv) != "" {
		return 0, false, begin()
	}
	program, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), enteredEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if probe, err := NewNamespace("probe"); err != nil {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	} else if err := probe.Close(); err != nil {
		return 0, false, err
	}
	runtime.LockOSThread() // the copy's parent is this thread, and Pdeathsig is about its end
	defer runtime.UnlockOSThread()
	// A terminal sends Ctrl-C to both processes: this one waits for the copy to clean up.
	// A signal to this process alone is passed on.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("make namespaces (run as root, or allow them by kernel.unprivileged_userns_clone=1, "+
			"user.max_user_namespaces>0 and kernel.apparmor_restrict_unprivileged_userns=0): %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			cmd.Process.Signal(s)
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, false, fmt.Errorf("run in a network namespace: %w", err)
			}
			return cmd.ProcessState.ExitCode(), true, nil
		}
	}
}

// begin prepares the namespace of the copy.
func begin() error {
	probe, err := NewNamespace("probe")
	if err != nil {
		return fmt.Errorf("this machine's user namespaces cannot make network namespaces; run as root: %w", err)
	}
	if err := probe.Close(); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("set up loopback: %w: %s", err, out)
	}
	return nil
}
