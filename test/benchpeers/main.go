// Command benchpeers measures the agent beside kube-proxy: both follow the same API
// server, each in the network namespace of a node of its own, one after the other, and
// the kernel's state is looked at from outside by the same means. Run it as root: `make bench-peers`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/test/cluster"
	"sluice/test/lab"
)

func main() {
	binary := flag.String("binary", "bin/sluice", "the program to measure")
	sizes := flag.String("sizes", "1x1,100x3,1000x10,10000x10", "Services x endpoints, comma-separated, growing")
	var how options
	flag.IntVar(&how.changes, "changes", 15, "how many times one endpoint is changed alone")
	flag.DurationVar(&how.churn, "churn", time.Minute, "how long endpoints are changed at the rate; 0: not at all")
	flag.IntVar(&how.rate, "rate", 100, "changes a second under churn")
	flag.StringVar(&how.mode, "mode", "nftables", "nftables, or iptables (through nf_tables) for both")
	flag.Parse()
	code, entered, err := lab.Enter()
	if err == nil && !entered {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, *binary, *sizes, how)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		code = 1
	}
	os.Exit(code)
}

var errMissed = errors.New("not all targets are met")

func run(ctx context.Context, binary, list string, how options) (err error) {
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w; run `make build` first", err)
	}
	programs, err := cluster.Peers("kube-proxy", "kube-apiserver")
	if err != nil {
		return err
	}
	c, err := cluster.New(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	o := &objects{cluster: c}
	t := table{out: os.Stdout, targets: targets[how.mode]}
	t.header()
	pair, ok := peers[how.mode]
	if !ok {
		return fmt.Errorf("mode %q: want nftables or iptables", how.mode)
	}
	for word := range strings.SplitSeq(list, ",") {
		var s size
		if _, err := fmt.Sscanf(word, "%dx%d", &s.services, &s.endpoints); err != nil || s.services < o.made || s.endpoints < 1 {
			return fmt.Errorf("size %q: want Services x endpoints, like 100x3, and not fewer Services than before", word)
		}
		fmt.Fprintf(os.Stderr, "%s %v: objects", time.Now().Format(time.TimeOnly), s)
		if err := o.grow(ctx, s); err != nil {
			return err
		}
		var theirs, ours result
		for _, p := range []struct {
			peer
			binary string
			result *result
		}{{pair.sluice, binary, &ours}, {pair.kubeProxy, filepath.Join(programs, "kube-proxy"), &theirs}} {
			fmt.Fprintf(os.Stderr, ", %s", p.name)
			*p.result, err = measure(ctx, c, o, p.peer, p.binary, how)
			if errors.Is(err, errSlow) && p.result == &theirs {
				fmt.Fprintf(os.Stderr, " (which could not follow: %v)", err)
				theirs, err = result{}, nil
			}
			if err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
		}
		fmt.Fprintf(os.Stderr, "; load average %s\n", load())
		t.rows(s, theirs, ours)
	}
	if t.missed > 0 {
		return errMissed
	}
	return nil
}

// load is the machine's load average.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(content))[:3], " ")
}
