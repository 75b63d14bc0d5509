package process_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/process"
)

// start runs a shell script and waits until it has printed a line.
func start(t *testing.T, script string) *process.Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(nil, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEnd(t *testing.T) {
	p := start(t, `trap "exit 3" TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		t.Error(err)
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the exit code is %d, want 3", code)
	}
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		t.Errorf("ended already: %v", err)
	}
}

func TestEndDeaf(t *testing.T) {
	p := start(t, `trap "" TERM; echo ready; while :; do sleep 0.01; done`)
	err := p.End(syscall.SIGTERM, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "sh did not end within 50ms of signal terminated") {
		t.Errorf("the error is %v", err)
	}
	if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", p.Cmd.ProcessState)
	}
}

func TestNoProgram(t *testing.T) {
	if _, err := process.Start(nil, exec.Command("/nowhere/etcd")); err == nil || !strings.HasPrefix(err.Error(), "start etcd: ") {
		t.Errorf("the error is %v", err)
	}
}
