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

// enteredEnv marks the copy of the process that runs in a user namespace.
const enteredEnv = "SLUICE_LAB_ENTERED"

// Enter makes sure that this process may make network namespaces, and is to be
// called first in main or TestMain. Where it may (as root), entered is false and the caller goes on. Where it
// may not, Enter runs the same program once more as root of a user namespace of its own; entered
// is then true, and the caller ends with the exit code. An error says what is missing.
func Enter() (code int, entered bool, err error) {
	probe, err := NewNamespace("probe")
	if err == nil {
		return 0, false, probe.Close()
	}
	if os.Getenv(enteredEnv) != "" {
		return 0, false, fmt.Errorf("this machine's user namespaces cannot make network namespaces; run as root: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), enteredEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGTERM,
	}
	runtime.LockOSThread() // the copy's parent is this thread, and Pdeathsig is about its end
	defer runtime.UnlockOSThread()
	// A terminal sends Ctrl-C to both processes: this one waits for the copy to clean up.
	// A signal to this process alone is passed on.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("make a user namespace (run as root, or allow them by kernel.unprivileged_userns_clone=1, "+
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
				return 0, false, fmt.Errorf("run in a user namespace: %w", err)
			}
			return cmd.ProcessState.ExitCode(), true, nil
		}
	}
}
