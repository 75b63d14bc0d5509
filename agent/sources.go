package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice/agent/config"
	"sluice/agent/files"
	"sluice/agent/kube"
	"sluice/agent/source"
	"sluice/store"
)

// cacheFile is the name of the cache in --data-dir.
const cacheFile = "objects.db"

// nodeName finds this node's name where it is not configured.
func nodeName(cfg *config.Config, log *slog.Logger) (string, error) {
	name, from, err := kube.NodeName(cfg.Kubeconfig)
	if err == nil {
		log.Info("node name found", "name", name, "from", from)
	}
	return name, err
}

func (l *loop) cachePath() string { return filepath.Join(l.cfg.DataDir, cacheFile) }

// knowledgeAge is how long ago the objects were in step with the API server. It is
// unknown with manifests, which are read as they are.
func (l *loop) knowledgeAge() (time.Duration, bool) {
	if l.cfg.Manifests != "" {
		return 0, false
	}
	return l.store.Age(time.Now())
}

// openSource opens the source and the store, which remembers the objects of an
// earlier run: those of an API server that cannot be reached yet, and those whose manifest
// was broken meanwhile.
func (l *loop) openSource() {
	o := store.Options{
		Path: l.cachePath(), CommitInterval: l.cfg.CacheCommitInterval, Log: l.log,
		Identity: store.Identity{NodeName: l.cfg.NodeName},
	}
	l.source = l.newSource()
	o.Identity.Source = "API server"
	if l.cfg.Manifests != "" {
		o.Identity.Source = l.source.String()
	} else if id, err := kube.ReadIdentity(l.cfg.Kubeconfig); err == nil {
		// The kubeconfig names no cluster. That its certificate authority is the same is the best that
		// is known before the server answers: the address is 127.0.0.1 on every k3s node.
		o.Identity.Facts = map[string][]string{factAuthorities: id.Authorities}
		l.node.setServer(kube.ServerAddr(l.cfg.Kubeconfig))
	}
	l.store, l.cached = store.Open(o)
	l.tracker.SetKnowledge(l.knowledgeAge)
	if !l.cached.Complete {
		l.log.Info("the cache is not used: rules stay as they are until all objects are known", "reason", l.cached.Why)
		return
	}
	age := "unknown"
	if d, known := l.store.Age(time.Now()); known {
		age = d.Round(time.Second).String()
	}
	l.log.Info("Services are served from the cache until the source answers", "services", l.store.Counts()[source.Service], "age", age)
}

// newSource returns a source that has handed over nothing yet.
func (l *loop) newSource() source.Source {
	if l.cfg.Manifests != "" {
		return files.New(files.Options{Dir: l.cfg.Manifests, NodeName: l.cfg.NodeName, Log: l.log})
	}
	var s *kube.Source
	s = kube.New(kube.Options{Kubeconfig: l.cfg.Kubeconfig, NodeName: l.cfg.NodeName, Log: l.log, InStep: func(kind source.Kind, version string) {
		if id, known := s.Identity(); known {
			// The kubeconfig was perhaps written only now, or with other authorities.
			_ = l.do(context.Background(), func() {
				l.setIdentity(factAuthorities, id.Authorities...)
				l.node.setServer(s.Server())
			})
		}
		l.inStep(kind, version)
	}, Large: func() {
		_ = l.do(context.Background(), func() {
			if l.release.IsZero() {
				l.release = l.releaseTime()
			}
		})
	}})
	return s
}

// Names of the facts that tell clusters apart, in the cache. The ClusterIP of the Service
// default/kubernetes never changes while a cluster lives.
const (
	factAuthorities = "certificate authority"
	factKubernetes  = "ClusterIP of default/kubernetes"
)

// setIdentity notes a fact about the cluster that is followed.
func (l *loop) setIdentity(fact string, values ...string) {
	if was, same := l.store.SetIdentity(fact, values...); !same {
		l.log.Warn("this is another cluster than the one in the cache: what is not in it goes as soon as all objects are known",
			"fact", fact, "was", was, "is", strings.Join(values, ","))
	}
}

// identify notes the facts that come with the objects.
func (l *loop) identify(c *source.Change) {
	svc, ok := c.Object.(*corev1.Service)
	if !ok || svc.Namespace != "default" || svc.Name != "kubernetes" {
		return
	}
	l.setIdentity(factKubernetes, svc.Spec.ClusterIP)
}

// runSource runs the source until ctx ends. When the store has lost what it knew, a new one
// hands over everything again.
func (l *loop) runSource(ctx context.Context) error {
	for now := l.source; ; {
		run, cancel := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		go func() { stopped <- now.Run(run, l) }()
		select {
		case err := <-stopped:
			cancel()
			if ctx.Err() != nil {
				err = nil
			}
			return err
		case <-l.restart:
			cancel()
			<-stopped
			now = l.newSource()
			if err := l.do(ctx, func() { l.source = now }); err != nil {
				return nil // the agent is stopping
			}
		}
	}
}
