package agent

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
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/lab"
)

// soon is how long a change may take until packets go by it. The agent promises one second; a busy machine gets another.
const soon = 2 * time.Second

// patience is how long is waited for what has no time set. It is long, as the tests share the machine, and
// writing 50 MB holds all of them up.
const patience = 20 * time.Second

// process is an agent in a network namespace, with its directory of manifests. It can be ended and
// started again.
type process struct {
	t         *testing.T
	ns        *lab.Namespace
	dir       string // of all its files
	manifests string
	args      []string
	// wrapper is a command that starts the program in its stead, e.g. without a capability.
	wrapper []string

	cmd   *exec.Cmd
	ended chan struct{}
	log   buffer // of all its lives
}

// buffer collects what processes write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newProcess prepares an agent. When the test fails its log is shown.
func newProcess(t *testing.T, ns *lab.Namespace, args ...string) *process {
	t.Helper()
	p := &process{t: t, ns: ns, args: args}
	p.useDir(t.TempDir())
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of the agent:\n%s", p.log.String())
		}
	})
	return p
}

// useDir makes dir the directory of all its files.
func (p *process) useDir(dir string) {
	p.t.Helper()
	p.dir, p.manifests = dir, filepath.Join(dir, "manifests")
	for _, err := range []error{
		os.Mkdir(p.manifests, 0o755),
		os.WriteFile(p.config(), fmt.Appendf(nil, "data-dir: %s\n", p.dir), 0o600),
	} {
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *process) config() string { return filepath.Join(p.dir, "config.yaml") }
func (p *process) socket() string { return filepath.Join(p.dir, "sock") }

// start starts the agent, and does not wait for it.
func (p *process) start() {
	p.t.Helper()
	args := slices.Concat(p.wrapper, []string{binary, "agent", "--manifests", p.manifests, "--socket", p.socket(), "--config", p.config(),
		"--hostname-override", "node"}, p.args)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the tests end without a clean-up
	p.ended = make(chan struct{})
	if err := p.ns.Start(p.cmd); err != nil {
		p.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(p.cmd, p.ended)
}

// run starts the agent and waits until its rules are in the kernel.
func (p *process) run() {
	p.t.Helper()
	p.start()
	p.await(patience, "rules in the kernel", func(s status.Status) bool { return s.Healthy && settled(s) })
}

// settled tells whether all changes that the agent knows of are in the kernel.
func settled(s status.Status) bool {
	return s.Synced && len(s.Families) > 0 && !slices.ContainsFunc(s.Families, func(f status.Family) bool { return f.Pending || f.LastSync.IsZero() })
}

// end ends the agent with a signal and waits for it. It returns its exit code, -1 if the signal killed it.
func (p *process) end(signal syscall.Signal) int {
	if p.cmd == nil {
		return 0
	}
	_ = p.cmd.Process.Signal(signal) // it may have ended by itself
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Errorf("the agent did not end within %v of signal %v", patience, signal)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	code := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return code
}

// stop ends the agent as systemd does.
func (p *process) stop() {
	p.t.Helper()
	if code := p.end(syscall.SIGTERM); code != 0 {
		p.t.Errorf("the exit code after SIGTERM is %d, want 0", code)
	}
}

// alive fails the test if the agent has ended by itself.
func (p *process) alive() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("the agent ended by itself: %v", p.cmd.ProcessState)
	default:
	}
}

// status asks the agent how it is.
func (p *process) status() (status.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return status.Client{Socket: p.socket()}.Status(ctx)
}

// await waits until the agent's status is as wanted.
func (p *process) await(within time.Duration, what string, wanted func(status.Status) bool) status.Status {
	p.t.Helper()
	var s status.Status
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if s, err = p.status(); err == nil && wanted(s) {
			return s
		}
		p.alive()
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not within %v; status: %+v; %v", what, within, s, err)
		}
	}
}

// awaitProblem waits until the status has a problem whose text has all the words.
func (p *process) awaitProblem(within time.Duration, words ...string) {
	p.t.Helper()
	p.await(within, fmt.Sprintf("a problem with the words %q", words), func(s status.Status) bool {
		for _, problem := range s.Problems {
			if containsAll(problem.Where+": "+problem.Reason, words) {
				return true
			}
		}
		return false
	})
}

// awaitNoProblem waits until the status has no problems.
func (p *process) awaitNoProblem(within time.Duration) {
	p.t.Helper()
	p.await(within, "no problems", func(s status.Status) bool { return len(s.Problems) == 0 })
}

// logged counts the lines of the log that have all the words.
func (p *process) logged(words ...string) (n int) {
	for line := range strings.Lines(p.log.String()) {
		if containsAll(line, words) {
			n++
		}
	}
	return n
}

// awaitLog waits for a line of the log that has all the words.
func (p *process) awaitLog(within time.Duration, words ...string) {
	p.t.Helper()
	for deadline := time.Now().Add(within); p.logged(words...) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("no line of the log has the words %q", words)
		}
	}
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// command runs another command of sluice beside the agent, on the same socket, and returns what it printed and its exit code.
func (p *process) command(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	args = slices.Concat(p.wrapper, []string{binary}, args, []string{"--socket", p.socket(), "--config", p.config()})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := p.ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// write puts a manifest into the directory in one step.
func (p *process) write(file, text string) {
	p.t.Helper()
	temp := filepath.Join(p.dir, "new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(p.manifests, file)); err != nil {
		p.t.Fatal(err)
	}
}

// remove removes a manifest.
func (p *process) remove(file string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.manifests, file)); err != nil {
		p.t.Fatal(err)
	}
}
