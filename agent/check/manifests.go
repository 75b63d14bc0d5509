package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"sluice/agent/files"
	"sluice/agent/kube"
	"sluice/agent/source"
)

// manifests is what was read from --manifests.
type manifests struct {
	dir string
	err error // why it could not be read
	// services counts the Services that are taken up; problems are what is not.
	services int
	problems []source.Problem
	// node is the name of this node's Node, nodes are those that there are.
	node     string
	nodes    []string
	podCIDRs []netip.Prefix // of this node's Node
}

// readManifests reads the directory as the agent does; nil without one.
func (l *looker) readManifests() *manifests {
	if l.Config.Manifests == "" {
		return nil
	}
	m := &manifests{dir: l.Config.Manifests, node: l.Config.NodeName}
	if m.node == "" {
		m.node, _, _ = kube.NodeName(l.Config.Kubeconfig)
	}
	if _, m.err = os.ReadDir(m.dir); m.err != nil {
		return m
	}
	ctx, cancel := context.WithTimeout(l.ctx, apiTime)
	defer cancel()
	sink := &manifestSink{manifests: m, done: cancel}
	err := files.New(files.Options{Dir: m.dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx, sink)
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if !sink.synced {
		m.err = errors.Join(err, errors.New("it was not read to its end: a process has a file open for writing"))
	}
	slices.Sort(m.nodes)
	return m
}

// manifestSink takes in what there is at one moment.
type manifestSink struct {
	mu sync.Mutex
	*manifests
	synced bool
	done   func()
}

// Apply implements source.Sink.
func (s *manifestSink) Apply(_ context.Context, changes []source.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		switch object := c.Object.(type) {
		case *corev1.Service:
			s.services++
		case *corev1.Node:
			s.nodes = append(s.nodes, c.Name)
			if c.Name != s.node {
				continue
			}
			for _, text := range append(object.Spec.PodCIDRs, object.Spec.PodCIDR) {
				if p, err := netip.ParsePrefix(text); err == nil && !slices.Contains(s.podCIDRs, p) {
					s.podCIDRs = append(s.podCIDRs, p)
				}
			}
		}
	}
	return nil
}

// Replace implements source.Sink.
func (s *manifestSink) Replace(context.Context, source.Kind, map[source.Name]struct{}) error {
	return nil
}

// Synced implements source.Sink.
func (s *manifestSink) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	s.done()
}

// SetProblems implements source.Sink.
func (s *manifestSink) SetProblems(problems []source.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = problems
}

// maxProblems bounds the items about documents.
const maxProblems = 20

// judgeManifests is about the directory, the documents that are refused, and this node's Node.
func judgeManifests(m *manifests) []Item {
	const name = "manifests"
	switch {
	case errors.Is(m.err, fs.ErrPermission):
		return []Item{unseen(name, m.err)}
	case m.err != nil:
		return []Item{fail(name, "make the directory, or correct --manifests", "%v", m.err)}
	}
	var items []Item
	for i, p := range m.problems {
		if i == maxProblems {
			items = append(items, fail(name, "correct those above first", "%d more that cannot be taken up", len(m.problems)-i))
			break
		}
		items = append(items, fail(name, "correct it: until then it is not served, or as it was before", "%s: %s", p.Where, oneLine(p.Reason)))
	}
	if len(items) == 0 {
		services := "1 Service"
		if m.services != 1 {
			services = fmt.Sprintf("%d Services", m.services)
		}
		items = append(items, ok(name, "%s, %s", m.dir, services))
	}
	const node = "Node"
	if slices.Contains(m.nodes, m.node) {
		return append(items, ok(node, "%s", m.node))
	}
	there := ""
	if len(m.nodes) > 0 {
		there = ", only " + strings.Join(m.nodes[:min(len(m.nodes), maxProblems)], ", ")
	}
	return append(items, warn(node, "write one into the directory, or set --hostname-override to the name that it has",
		"there is no Node %s%s: its zone and, without --cluster-cidr, its pods' range are unknown", m.node, there))
}
