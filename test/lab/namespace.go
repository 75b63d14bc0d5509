package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
)

// Namespace is a network namespace without a name: it is gone when it is closed
// and its last process has ended. Its methods may be called from any goroutine.
type Namespace struct {
	name   string
	handle netns.NsHandle
}

// NewNamespace makes a network namespace. The name is only for messages.
func NewNamespace(name string) (*Namespace, error) {
	n := &Namespace{name: name, handle: netns.None()}
	err := onOwnThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make network namespace %s (this needs root or a user namespace): %w", name, err)
	}
	return n, nil
}

// FD is the file descriptor that holds the namespace. It belongs to n.
func (n *Namespace) FD() int { return int(n.handle) }

func (n *Namespace) String() string { return n.name }

// Close lets go of the namespace.
func (n *Namespace) Close() error { return n.handle.Close() }

// Do runs fn inside the namespace: sockets that fn opens and processes that it
// starts stay there for good. fn must not start goroutines that count on being inside.
func (n *Namespace) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		return fn()
	})
}

// onOwnThread runs fn on an OS thread that nothing else uses meanwhile, and puts
// the thread's network namespace back afterwards. Where that fails the thread is thrown away.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function did not return")
		defer func() { done <- err }()
		runtime.LockOSThread()
		home, errHome := netns.Get()
		if errHome != nil {
			err = fmt.Errorf("open this thread's network namespace: %w", errHome)
			return
		}
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
			home.Close()
		}()
		err = fn()
	}()
	return <-done
}

// Dial connects from inside the namespace, as net.Dialer does.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens inside the namespace, as net.ListenConfig does.
func (n *Namespace) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// Start starts a command inside the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a command inside the namespace to its end and returns what it printed
// on its standard output. The error holds what it printed on its standard error.
func (n *Namespace) Run(ctx context.Context, stdin, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := n.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("run %q in %s: %w: %s", cmd.Args, n.name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// IP runs the lines of a script as commands of iproute2's ip inside the namespace.
func (n *Namespace) IP(ctx context.Context, script string) error {
	_, err := n.Run(ctx, strings.TrimSpace(script)+"\n", "ip", "-batch", "-")
	return err
}
