package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/test/lab"
	"sluice/test/process"
	"sluice/test/tempdir"
)

// agent is a running agent in the node's namespace.
type agent struct {
	*process.Process
	node   *lab.Host
	dir    *tempdir.Dir // of its own files
	output bytes.Buffer
	began  time.Time
	binary string
}

// startAgent starts the agent on the manifests. It ends by stop, and with this process in any case.
func startAgent(node *lab.Host, binary, manifests string) (*agent, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("find the binary (make build makes it): %w", err)
	}
	dir, err := tempdir.New("sluice-demo-")
	if err != nil {
		return nil, err
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	a := &agent{node: node, dir: dir, binary: binary}
	config := filepath.Join(dir.Path, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "data-dir: %s\nsocket: %s\n", dir.Path, a.socket()), 0o600); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	args := []string{"agent", "--manifests", manifests, "--hostname-override", "node", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"}
	fmt.Printf("In node runs: sluice %s\n", strings.Join(args, " "))
	args = append(args, "--config", config)
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &a.output, &a.output
	a.began = time.Now()
	if a.Process, err = process.Start(node.Namespace, cmd); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return a, nil
}

func (a *agent) socket() string { return filepath.Join(a.dir.Path, "sluice.sock") }

// awaitReady waits until the agent says that the rules are in the kernel, and shows what it serves.
func (a *agent) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for { // sluice status fails until the rules are in the kernel
		_, err := a.node.Run(ctx, "", a.binary, "status", "--socket", a.socket())
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent is not ready after %s: %w; its log:\n%s", time.Since(a.began).Round(time.Millisecond), err, a.log())
		case <-a.Ended:
			return fmt.Errorf("the agent ended; its log:\n%s", a.log())
		case <-time.After(10 * time.Millisecond):
		}
	}
	fmt.Printf("After %s it is healthy. sluice get services says:\n\n", time.Since(a.began).Round(time.Millisecond))
	table, err := a.node.Run(ctx, "", a.binary, "get", "services", "--socket", a.socket())
	if err != nil {
		return err
	}
	fmt.Println(indent(strings.TrimSpace(table)) + "\n")
	return nil
}

// stop ends the agent and removes its files.
func (a *agent) stop() {
	if err := a.End(syscall.SIGTERM, 3*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	a.dir.Close()
}

// log returns what the agent wrote, once it has ended.
func (a *agent) log() string {
	a.stop()
	return a.output.String()
}
