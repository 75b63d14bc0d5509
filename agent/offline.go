package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice/agent/config"
	"sluice/agent/kube"
	"sluice/agent/nodeaddr"
	"sluice/agent/source"
	"sluice/agent/status"
	"sluice/agent/sysctl"
	"sluice/proxy"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// Offline plans as the agent does when it starts, and answers as it would. It writes nothing: no rule, no kernel parameter and no
// file but a copy of the cache in a directory of its own, and it listens nowhere. It can be used beside a running agent.
type Offline struct {
	loop    *loop
	dir     string
	why     string // the proxy mode
	stop    context.CancelFunc
	running sync.WaitGroup
}

// OfflineOptions say what an Offline knows.
type OfflineOptions struct {
	// Wait is how long the source of the configuration may take to hand over all objects. With 0 it is not asked, and the cache is all
	// there is, unless there are manifests. What the cache has stands in for an API server that does not answer.
	Wait time.Duration
	// AsNode takes the addresses of the Node object where none of them is this machine's: what is asked about is another node. Manifests
	// are read without the cache then. Else it has what a document described before it was broken, as the agent has.
	AsNode bool
	// NoKernel asks this machine's kernel for nothing but its addresses.
	NoKernel bool
}

// manifestsWait bounds reading manifests: a process may have a file open for writing.
const manifestsWait = 10 * time.Second

// NoObjectsError says why an Offline knows no objects.
type NoObjectsError struct{ Reason string }

func (e *NoObjectsError) Error() string { return e.Reason }

// OpenOffline plans all objects that are known without an agent. It must be closed. A *NoObjectsError says that there are none.
func OpenOffline(ctx context.Context, cfg config.Config, o OfflineOptions) (_ *Offline, err error) {
	quiet := slog.New(slog.DiscardHandler)
	kube.LogLibraries(quiet) // what concerns the user is a problem of the source
	if cfg.NodeName == "" {
		if cfg.NodeName, err = nodeName(&cfg, quiet); err != nil {
			return nil, err
		}
	}
	planner, err := newNodePlanner(&cfg)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a copy of the cache: %w", err)
	}
	off := &Offline{dir: dir, stop: func() {}}
	defer func() {
		if err != nil {
			off.Close()
		}
	}()
	if !o.AsNode {
		err := copyFile(filepath.Join(cfg.DataDir, cacheFile), filepath.Join(dir, cacheFile))
		switch {
		case err == nil, errors.Is(err, os.ErrNotExist):
		case errors.Is(err, os.ErrPermission) && cfg.Manifests == "":
			return nil, fmt.Errorf("read the cache: %w; run this as root", err)
		case !errors.Is(err, os.ErrPermission):
			return nil, fmt.Errorf("read the cache: %w", err)
		}
	}
	was := cfg.DataDir
	cfg.DataDir = dir
	l := newLoop(cfg, planner, quiet)
	if cfg.Manifests != "" {
		o.Wait = max(o.Wait, manifestsWait)
		if _, err := os.ReadDir(cfg.Manifests); err != nil && l.cached.Complete {
			o.Wait = 0 // as it would be for the agent, everything stays as it was
		} else if err != nil {
			off.loop = l
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
	}
	off.loop, l.offline, l.elsewhere = l, true, o.NoKernel
	if o.Wait == 0 && !l.cached.Complete {
		return nil, &NoObjectsError{fmt.Sprintf("the cache in %s cannot be used: %s; of the options that an agent was started with, as --manifests or --data-dir, "+
			"this command knows those in the configuration file", was, l.cached.Why)}
	}
	off.why = l.chooseMode(ctx)
	off.openFamilies()
	l.openMetrics()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	off.stop = stop
	off.running.Go(func() { l.run(running) })
	var sourceEnd error
	if o.Wait > 0 {
		off.running.Go(func() { sourceEnd = l.runSource(running) })
	}
	if err := off.wait(ctx, o); err != nil {
		off.stop()
		off.running.Wait()
		return nil, errors.Join(err, sourceEnd)
	}
	return off, nil
}

// openFamilies makes what plans for each family, with the kernel's slots where the kernel can be asked.
func (off *Offline) openFamilies() {
	l := off.loop
	families := probe.Families()
	if len(families) == 0 {
		families = proxy.Families[:]
	}
	var peers nft.Peers
	for _, f := range families {
		open := func() (proxy.Writer, error) { return l.openWriter(f, &peers) }
		p := newProxier(f, open, nil, l.tracker, l.log)
		if !l.elsewhere {
			p.writer, _ = open() // without it slots are numbered anew, as in an empty kernel
		}
		l.proxiers = append(l.proxiers, p)
	}
}

// wait waits until all objects are known, or as long as the options say, and has them planned.
func (off *Offline) wait(ctx context.Context, o OfflineOptions) error {
	l := off.loop
	deadline := time.Now().Add(o.Wait)
	for {
		done := false
		err := l.do(ctx, func() {
			if done = l.synced || time.Now().After(deadline) && l.cached.Complete; done {
				l.facts = off.facts(o)
				l.node.changed = true
			}
		})
		switch {
		case err != nil:
			return err
		case done:
			return nil
		case time.Now().After(deadline):
			return off.silent(ctx, o.Wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// silent says why there are no objects although their source was asked.
func (off *Offline) silent(ctx context.Context, waited time.Duration) error {
	reason := fmt.Sprintf("%s did not hand over all objects within %v", off.loop.source, waited)
	for _, p := range off.Problems(ctx) {
		reason += fmt.Sprintf("; %s: %s", p.Where, p.Reason)
	}
	if off.loop.cfg.Manifests == "" {
		reason += "; the cache cannot be used either: " + off.loop.cached.Why
	}
	return &NoObjectsError{reason}
}

// facts are the addresses of the node that is asked about.
func (off *Offline) facts(o OfflineOptions) *nodeaddr.Facts {
	facts, err := nodeaddr.Read(0)
	if err != nil {
		facts = nodeaddr.Facts{}
	}
	node, err := off.loop.store.Node()
	if !o.AsNode || err != nil || node == nil {
		return &facts
	}
	other := nodeaddr.Facts{Primaries: map[proxy.Family]netip.Addr{}}
	for _, a := range node.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if slices.Contains(facts.All(), ip) {
			return &facts
		}
		other.Addrs = append(other.Addrs, nodeaddr.Address{Addr: ip})
		if f := proxy.FamilyOf(ip); !other.Primaries[f].IsValid() {
			other.Primaries[f] = ip
		}
	}
	if len(other.Addrs) == 0 {
		return &facts
	}
	off.loop.elsewhere = true
	return &other
}

// From says where the objects are from.
func (off *Offline) From(ctx context.Context) (text string) {
	l := off.loop
	_ = l.do(ctx, func() {
		text = l.source.String()
		if !l.synced {
			text = "the cache"
			if age, known := l.knowledgeAge(); known {
				text += fmt.Sprintf(", %v old", age.Round(time.Second))
			}
		}
	})
	return text
}

// Why says which proxy mode is used, and why.
func (off *Offline) Why() string { return off.why }

// Status is that of an agent which has not written yet.
func (off *Offline) Status(ctx context.Context) (status.Status, error) { return off.loop.Status(ctx) }

// Explain answers as status.Provider does.
func (off *Offline) Explain(ctx context.Context, q status.Question) ([]status.Path, error) {
	return off.loop.Explain(ctx, q)
}

// Diff answers as status.Provider does.
func (off *Offline) Diff(ctx context.Context) (status.Diff, error) { return off.loop.Diff(ctx) }

// Problems are what the source refused.
func (off *Offline) Problems(ctx context.Context) (problems []source.Problem) {
	_ = off.loop.do(ctx, func() { problems = off.loop.problems })
	return problems
}

// KernelParameters are those that an agent would set.
func (off *Offline) KernelParameters() []sysctl.Change {
	return sysctl.Wanted(sysctl.Options{Root: sysctl.Root, RAM: ram()})
}

// Close ends it.
func (off *Offline) Close() error {
	off.stop()
	off.running.Wait()
	if off.loop != nil {
		off.loop.close()
	}
	return os.RemoveAll(off.dir)
}

// copyFile copies a file that may be changed meanwhile: a cache that was is not whole, and says so.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
