// Package agent is the daemon: it takes objects from a source and facts from
// the kernel, plans, and writes.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/config"
	"sluice/agent/health"
	"sluice/agent/httpserver"
	"sluice/agent/kube"
	"sluice/agent/metrics"
	"sluice/agent/nodeaddr"
	"sluice/agent/notify"
	"sluice/agent/page"
	"sluice/agent/status"
	"sluice/agent/sysctl"
	"sluice/agent/version"
	"sluice/proxy"
	"sluice/proxy/conntrack"
	"sluice/proxy/iptables"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// Run runs the agent until ctx ends. The rules stay then. It returns an error
// only for what it cannot start without.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	socket, err := status.Listen(ctx, cfg.Socket)
	if err != nil {
		return err
	}
	defer socket.Close()
	if cfg.NodeName == "" {
		if cfg.NodeName, err = nodeName(&cfg, log); err != nil {
			return err
		}
	}
	planner, err := newNodePlanner(&cfg)
	if err != nil {
		return err
	}
	warnOfDirectories(&cfg, log)
	metrics.AllowProfiling(cfg.Profiling)
	kube.LogLibraries(log)
	// Half of Go's default: the heap grows by half between collections. An idle agent
	// collects rarely, and under churn the garbage is short-lived.
	debug.SetGCPercent(50)
	log.Info("starting", "version", version.Get().Version, "pid", os.Getpid(), "node", cfg.NodeName)
	sysctl.Apply(sysctl.Options{Root: sysctl.Root, RAM: ram(), Log: log})

	l := newLoop(cfg, planner, log)
	defer l.close()
	l.chooseMode(ctx)
	if err := l.openFamilies(); err != nil {
		return err
	}
	l.openMetrics()
	l.openRates()

	// Everything below ends with ctx, and Run waits for it.
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, p := range l.proxiers {
		p.watch = func() {
			if err := p.writer.Watch(ctx, func(by proxy.Program) { post(ctx, l.foreign, foreignChange{p, by}) }); err != nil {
				p.log.Warn("changes by other programs are not noticed", "error", err)
			}
		}
		if p.writer != nil {
			p.watch()
		}
	}
	running.Go(func() {
		nodeaddr.Watch(ctx, nodeaddr.Options{Log: log}, func(f nodeaddr.Facts) { post(ctx, l.addrs, f) })
	})
	running.Go(func() {
		if err := status.Serve(ctx, socket, l, log); err != nil {
			log.Error("the status socket is closed: sluice status and get do not work until a restart", "error", err)
		}
	})
	if cfg.HealthzBindAddress.IsValid() {
		running.Go(func() { health.Serve(ctx, cfg.HealthzBindAddress, l.tracker, health.Options{Log: log}) })
	}
	if cfg.MetricsBindAddress.IsValid() {
		o := metrics.ServeOptions{Options: httpserver.Options{Log: log}, Mode: l.mode, Config: &cfg, Page: page.Handler(l)}
		running.Go(func() { metrics.Serve(ctx, cfg.MetricsBindAddress, l.metrics, o) })
	}
	running.Go(func() { l.notifier.Run(ctx) })
	for _, p := range l.proxiers {
		running.Go(func() { l.removeOther(ctx, p) })
	}
	failed := make(chan error, 1)
	running.Go(func() {
		if err := l.runSource(ctx); err != nil {
			failed <- fmt.Errorf("read objects: %w", err)
			cancel()
		}
	})
	l.run(ctx)
	log.Info("stopping; the rules stay in the kernel")
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// post sends a message to the loop, unless ctx ends first.
func post[T any](ctx context.Context, to chan<- T, message T) {
	select {
	case to <- message:
	case <-ctx.Done():
	}
}

func newLoop(cfg config.Config, planner nodePlanner, log *slog.Logger) *loop {
	l := &loop{
		cfg: cfg, log: log, started: time.Now(), node: planner, budget: newBudget(ram()),
		tracker: health.NewTracker(2*cfg.SyncPeriod, nil),
		batches: make(chan batch), addrs: make(chan nodeaddr.Facts), foreign: make(chan foreignChange), calls: make(chan func()),
		restart: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	l.release = l.releaseTime()
	l.openSource()
	return l
}

// openFamilies opens a writer for each family that the kernel has. One that cannot be opened is tried again when its rules
// are to be written; it is an error if that is all of them.
func (l *loop) openFamilies() error {
	var errs []error
	var peers nft.Peers
	families := probe.Families()
	if !slices.Contains(families, proxy.IPv6) {
		l.log.Info("the kernel has no IPv6: only IPv4 is served")
	}
	writers, failures := make([]proxy.Writer, len(families)), make([]error, len(families))
	var opening sync.WaitGroup
	for i, f := range families {
		opening.Go(func() { writers[i], failures[i] = l.openWriter(f, &peers) })
	}
	opening.Wait()
	for i, f := range families {
		if failures[i] != nil {
			errs = append(errs, failures[i])
		}
		if errors.Is(failures[i], iptables.ErrNoIPTables) {
			l.log.Error("a family is not served", "family", f.String(), "error", failures[i])
			continue
		}
		flows, err := conntrack.Open(conntrack.Options{})
		if err != nil {
			l.log.Warn("flows to endpoints that are gone will not be deleted", "family", f.String(), "error", err)
		}
		p := newProxier(f, func() (proxy.Writer, error) { return l.openWriter(f, &peers) }, flows, l.tracker, l.log)
		if failures[i] == nil {
			p.writer = writers[i]
		}
		l.proxiers = append(l.proxiers, p)
	}
	if len(errs) == len(families) {
		return errors.Join(errs...)
	}
	return nil
}

// openMetrics makes what tells others of the loop: the metrics, and systemd's notifier.
func (l *loop) openMetrics() {
	o := metrics.Options{Store: l.store, Health: l.tracker, Services: l.cfg.MetricsServices, Log: l.log}
	if l.mode != proxy.ModeNFTables {
		o.Services = 0 // only nftables counts the connections of a Service
	}
	for _, p := range l.proxiers {
		o.Families = append(o.Families, p.family)
	}
	if l.cfg.Manifests == "" { // manifests are read as they are
		o.InStep = l.store.InStepTimes
	}
	l.metrics = metrics.New(o)
	for _, p := range l.proxiers {
		p.metrics = l.metrics
		p.metrics.Queued(p.family) // by newProxier
	}
	l.notifier = notify.New(notify.Options{Status: l.line, Log: l.log})
}

// line is one line for systemd. That the loop answers says that it lives.
func (l *loop) line(ctx context.Context) (text string, err error) {
	err = l.do(ctx, func() {
		s := notify.State{Source: l.source.String(), Synced: l.synced, Problems: len(l.problems)}
		s.Services, s.Endpoints = l.metrics.Served()
		if age, known := l.knowledgeAge(); known {
			s.Age = age
		} else if !l.synced {
			s.Age = -1
		}
		text = s.String()
	})
	return text, err
}

func (l *loop) close() {
	if err := l.store.Close(); err != nil {
		l.log.Warn("the cache may lack the last changes", "error", err)
	}
	for _, p := range l.proxiers {
		p.close()
	}
}

// ram is the machine's memory in bytes.
func ram() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}
