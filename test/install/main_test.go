package install

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"sluice/test/lab"
)

// insideEnv marks the copy of the test that has namespaces of its own.
const insideEnv = "SLUICE_INSTALL_INSIDE"

// TestMain runs the tests where they have their own mounts, network and processes:
// install.sh looks for a kube-proxy among all processes and rules.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	code, entered, err := lab.Enter()
	if err == nil && !entered {
		code, err = again()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests of the installer cannot run here:", err)
		code = 1
	}
	os.Exit(code)
}

// again runs this program once more, in new namespaces.
func again() (int, error) {
	runtime.LockOSThread() // the copy's parent is this thread, and Pdeathsig is about its end
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, // which also makes the mounts private
		Pdeathsig:    syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}
