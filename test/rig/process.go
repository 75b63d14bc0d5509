package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/lab"
	"sluice/test/process"
	"sluice/test/testlog"
)

// Soon is how long a change may take until packets go by it. The agent promises one second on a machine that has little else to do; that
// tests pass must not depend on it.
const Soon = 10 * time.Second

// Patience is how long is waited for what has no time set. It is long, as the tests share the machine, and
// writing 50 MB holds all of them up.
const Patience = 20 * time.Second

// Process is an agent in a network namespace. It can be ended and started again.
type Process struct {
	T  *testing.T
	NS *lab.Namespace
	// Dir holds all its files, Manifests those of them that it follows if Kubeconfig is empty.
	Dir, Manifests string
	// Kubeconfig is how it reaches an API server.
	Kubeconfig string
	// Args are more arguments.
	Args []string
	// Wrapper is a command that starts the program in its stead, e.g. without a capability.
	Wrapper []string

	// Process is it while it runs, nil else.
	*process.Process
	// Log is what it wrote in all its lives.
	Log testlog.Buffer
}

// NewProcess prepares an agent. When the test fails its log is shown.
func NewProcess(t *testing.T, ns *lab.Namespace, args ...string) *Process {
	t.Helper()
	p := &Process{T: t, NS: ns, Args: args}
	p.UseDir(t.TempDir())
	t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of the agent:\n%s", p.Log.String())
		}
	})
	return p
}

// UseDir makes dir the directory of all its files.
func (p *Process) UseDir(dir string) {
	p.T.Helper()
	p.Dir, p.Manifests = dir, filepath.Join(dir, "manifests")
	for _, err := range []error{
		os.Mkdir(p.Manifests, 0o755),
		os.WriteFile(p.Config(), fmt.Appendf(nil, "data-dir: %s\n", p.Dir), 0o600),
	} {
		if err != nil {
			p.T.Fatal(err)
		}
	}
}

// Config is the path of the configuration file.
func (p *Process) Config() string { return filepath.Join(p.Dir, "config.yaml") }

// Socket is the path of the socket for the status.
func (p *Process) Socket() string { return filepath.Join(p.Dir, "sock") }

// Start starts the agent, and does not wait for it.
func (p *Process) Start() {
	p.T.Helper()
	from := []string{"--manifests", p.Manifests}
	if p.Kubeconfig != "" {
		from = []string{"--kubeconfig", p.Kubeconfig}
	}
	args := slices.Concat(p.Wrapper, []string{Binary, "agent"}, from, []string{"--socket", p.Socket(), "--config", p.Config(),
		"--hostname-override", "node"}, p.Args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &p.Log, &p.Log
	var err error
	if p.Process, err = process.Start(p.NS, cmd); err != nil {
		p.T.Fatal(err)
	}
}

// Run starts the agent and waits until its rules are in the kernel.
func (p *Process) Run() {
	p.T.Helper()
	p.Start()
	p.Await(Patience, "rules in the kernel", func(s status.Status) bool { return s.Healthy && Settled(s) })
}

// Settled tells whether all changes that the agent knows of are in the kernel.
func Settled(s status.Status) bool {
	return s.Synced && len(s.Families) > 0 && !slices.ContainsFunc(s.Families, func(f status.Family) bool { return f.Pending || f.LastSync.IsZero() })
}

// End ends the agent with a signal and waits for it. It returns its exit code, -1 if the signal killed it.
func (p *Process) End(signal syscall.Signal) int {
	if p.Process == nil {
		return 0
	}
	if err := p.Process.End(signal, Patience); err != nil {
		p.T.Errorf("end the agent: %v", err)
	}
	code := p.Cmd.ProcessState.ExitCode()
	p.Process = nil
	return code
}

// Stop ends the agent as systemd does.
func (p *Process) Stop() {
	p.T.Helper()
	if code := p.End(syscall.SIGTERM); code != 0 {
		p.T.Errorf("the exit code after SIGTERM is %d, want 0", code)
	}
}

// Alive fails the test if the agent has ended by itself.
func (p *Process) Alive() {
	p.T.Helper()
	select {
	case <-p.Ended:
		p.T.Fatalf("the agent ended by itself: %v", p.Cmd.ProcessState)
	default:
	}
}

// Status asks the agent how it is.
func (p *Process) Status() (status.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return status.Client{Socket: p.Socket()}.Status(ctx)
}

// Await waits until the agent's status is as wanted.
func (p *Process) Await(within time.Duration, what string, wanted func(status.Status) bool) status.Status {
	p.T.Helper()
	var s status.Status
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if s, err = p.Status(); err == nil && wanted(s) {
			return s
		}
		p.Alive()
		if time.Now().After(deadline) {
			p.T.Fatalf("%s: not within %v; status: %+v; %v", what, within, s, err)
		}
	}
}

// AwaitProblem waits until the status has a problem whose text has all the words.
func (p *Process) AwaitProblem(within time.Duration, words ...string) {
	p.T.Helper()
	p.Await(within, fmt.Sprintf("a problem with the words %q", words), func(s status.Status) bool {
		for _, problem := range s.Problems {
			if ContainsAll(problem.Where+": "+problem.Reason, words) {
				return true
			}
		}
		return false
	})
}

// AwaitNoProblem waits until the status has no problems.
func (p *Process) AwaitNoProblem(within time.Duration) {
	p.T.Helper()
	p.Await(within, "no problems", func(s status.Status) bool { return len(s.Problems) == 0 })
}

// Logged counts the lines of the log that have all the words.
func (p *Process) Logged(words ...string) (n int) {
	for line := range strings.Lines(p.Log.String()) {
		if ContainsAll(line, words) {
			n++
		}
	}
	return n
}

// AwaitLog waits for a line of the log that has all the words.
func (p *Process) AwaitLog(within time.Duration, words ...string) {
	p.T.Helper()
	for deadline := time.Now().Add(within); p.Logged(words...) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.T.Fatalf("no line of the log has the words %q", words)
		}
	}
}

// ContainsAll tells whether a text has all the words.
func ContainsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// Command runs another command of sluice beside the agent, on the same socket, and returns what it printed and its exit code.
func (p *Process) Command(args ...string) (stdout, stderr string, code int) {
	p.T.Helper()
	args = slices.Concat(p.Wrapper, []string{Binary}, args, []string{"--socket", p.Socket(), "--config", p.Config()})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := p.NS.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.T.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Write puts a manifest into the directory in one step.
func (p *Process) Write(file, text string) {
	p.T.Helper()
	temp := filepath.Join(p.Dir, "new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		p.T.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(p.Manifests, file)); err != nil {
		p.T.Fatal(err)
	}
}

// Remove removes a manifest.
func (p *Process) Remove(file string) {
	p.T.Helper()
	if err := os.Remove(filepath.Join(p.Manifests, file)); err != nil {
		p.T.Fatal(err)
	}
}

// Eventually waits until something holds.
func (p *Process) Eventually(within time.Duration, what string, holds func() bool) {
	p.T.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.T.Fatalf("%s: not within %v", what, within)
		}
	}
}
