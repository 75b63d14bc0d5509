package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/test/cluster"
	"sluice/test/tempdir"
)

// result is what was measured of one peer at one size.
type result struct {
	start   time.Duration // from exec to complete rules
	offline time.Duration // the same from the cache, without an API server; 0: not possible
	// CPU time until these moments, which says more than they do where other programs run, too.
	startCPU, offlineCPU time.Duration
	memory               memory // some seconds after the start and the single changes
	churned              memory // at the end of the churn
	// sent and acked are the medians from the moment that the API server was sent one change, and
	// answered, to the kernel's change.
	sent, acked time.Duration
	first       time.Duration // the first packet of a connection
	cpu         time.Duration // under churn
	rate        float64       // changes a second that the API server really took
}

// options are how it is measured.
type options struct {
	mode    string
	changes int
	churn   time.Duration
	rate    int
}

// measure runs one peer at the size that the objects have.
func measure(ctx context.Context, c *cluster.Cluster, o *objects, kind peer, binary string, how options) (r result, err error) {
	dir, err := tempdir.New("sluice-benchpeers-")
	if err != nil {
		return r, err
	}
	defer dir.Close()
	p := &process{peer: kind, binary: binary, dir: dir.Path, node: kind.name + "-node"}
	if err := os.WriteFile(p.path("kubeconfig"), []byte(c.TokenKubeconfig(cluster.ProxyToken)), 0o600); err != nil {
		return r, err
	}
	if p.ns, err = newNode(ctx, p.node, c); err != nil {
		return r, err
	}
	// On a node the kubeconfig is there long before: one that was written in the last two
	// seconds is read twice by the agent, since it could be in the middle of being written.
	time.Sleep(2500 * time.Millisecond)
	defer func() { err = errors.Join(err, p.ns.Close()) }()
	defer p.kill()
	if r.start, r.startCPU, err = p.begin(ctx, o.size); err != nil {
		return r, err
	}
	if err := p.rest(ctx); err != nil {
		return r, err
	}
	if r.sent, r.acked, err = p.singleChanges(ctx, o, how.changes); err != nil {
		return r, err
	}
	if err := p.rest(ctx); err != nil {
		return r, err
	}
	if r.memory, err = readMemory(p.cmd.Process.Pid); err != nil {
		return r, err
	}
	if r.first, err = p.firstPackets(o.size); err != nil {
		return r, err
	}
	if how.churn > 0 {
		if err := p.churn(ctx, o, how, &r); err != nil {
			return r, err
		}
	}
	if !kind.startsOffline {
		return r, nil
	}
	if err := p.rest(ctx); err != nil {
		return r, err
	}
	if out, err := exec.CommandContext(ctx, binary, "diff", "--socket", p.path("sock")).CombinedOutput(); err != nil {
		return r, fmt.Errorf("the kernel is not as it should be: %w:\n%s", err, tail(string(out)))
	}
	// A reboot without a network: another namespace, the same files.
	if err := errors.Join(p.stop(), p.ns.Close()); err != nil {
		return r, err
	}
	if p.ns, err = newNode(ctx, p.node, nil); err != nil {
		return r, err
	}
	r.offline, r.offlineCPU, err = p.begin(ctx, o.size)
	return r, err
}

// singleChanges moves one endpoint at a time, in more than the second that kube-proxy leaves between two writes.
func (p *process) singleChanges(ctx context.Context, o *objects, n int) (sent, acked time.Duration, err error) {
	w, err := watch(p.ns)
	if err != nil {
		return 0, 0, err
	}
	defer w.close()
	var fromSent, fromAcked []time.Duration
	for range n {
		time.Sleep(1500*time.Millisecond + rand.N(500*time.Millisecond))
		to := o.nextAddress()
		w.expect(to.AsSlice())
		began := time.Now()
		if err := o.move(ctx, o.size.services/2, to); err != nil {
			return 0, 0, err
		}
		answered := time.Now()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		at, err := w.await(limited)
		cancel()
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", p.name, err)
		}
		fromSent = append(fromSent, at.Sub(began))
		fromAcked = append(fromAcked, max(0, at.Sub(answered)))
	}
	return median(fromSent), median(fromAcked), nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// churn moves endpoints at a steady rate, those of all Services in turn, and measures the CPU time that the peer uses.
func (p *process) churn(ctx context.Context, o *objects, how options, r *result) error {
	before, err := readCPU(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	began := time.Now()
	var done atomic.Int64
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	ticks := time.NewTicker(time.Second / time.Duration(how.rate))
	defer ticks.Stop()
	for i := 0; time.Since(began) < how.churn && limited.Err() == nil; i++ {
		<-ticks.C
		group.Go(func() error {
			done.Add(1)
			return o.move(limited, i*7919%o.size.services, o.nextAddress())
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.rate = float64(done.Load()) / time.Since(began).Seconds()
	if r.churned, err = readMemory(p.cmd.Process.Pid); err != nil {
		return err
	}
	after, err := readCPU(p.cmd.Process.Pid)
	r.cpu = after - before
	return err
}
