// Package check looks at a machine and says what keeps sluice from working on it, or will: one
// Item for each thing. What is read is kept apart from what it means: the judges are functions
// of values.
package check

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"sluice/agent/config"
)

// Level is how good a thing is.
type Level string

// The levels. Warn is also what could not be looked at.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Item is one thing that was looked at.
type Item struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Level Level  `json:"level"`
	// Detail is what was seen.
	Detail string `json:"detail,omitempty"`
	// Remedy is what to do; empty if Level is OK.
	Remedy string `json:"remedy,omitempty"`
}

// Report is all that was looked at.
type Report struct {
	Items    []Item `json:"items"`
	Warnings int    `json:"warnings"`
	Failures int    `json:"failures"`
}

// The groups, in the order in which they are printed.
const (
	groupKernel  = "Kernel"
	groupNetwork = "Network"
	groupOthers  = "Other programs"
	groupCluster = "Cluster"
	groupMachine = "Machine"
)

// Options for Run.
type Options struct {
	Config config.Config
	// Root is the directory that /etc, /var and /lib are looked for in, "/" except in tests.
	Root string
	// Now is the time.
	Now time.Time
}

// apiTime bounds what is asked of the API server.
const apiTime = 10 * time.Second

// Run looks at this machine, in the network namespace of the calling thread.
func Run(ctx context.Context, o Options) Report {
	l := looker{Options: o, ctx: ctx}
	var r Report
	for _, group := range []struct {
		name string
		look func() []Item
	}{
		{groupKernel, l.kernel}, {groupNetwork, l.network}, {groupOthers, l.others}, {groupCluster, l.cluster}, {groupMachine, l.machine},
	} {
		for _, item := range group.look() {
			item.Group = group.name
			r.add(item)
		}
	}
	return r
}

func (r *Report) add(item Item) {
	r.Items = append(r.Items, item)
	switch item.Level {
	case Warn:
		r.Warnings++
	case Fail:
		r.Failures++
	}
}

// looker reads what the judges judge.
type looker struct {
	Options
	ctx context.Context
}

func (l *looker) path(p string) string { return filepath.Join(l.Root, p) }

// pods is the pods' range for remedies: a configured one, else k3s's.
func (l *looker) pods(v6 bool) string {
	for _, p := range l.Config.ClusterCIDRs {
		if p.Addr().Is6() == v6 {
			return p.String()
		}
	}
	if v6 {
		return "fd42::/56"
	}
	return "10.42.0.0/16"
}

func ok(name, format string, args ...any) Item {
	return Item{Name: name, Level: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(name, remedy, format string, args ...any) Item {
	return Item{Name: name, Level: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(name, remedy, format string, args ...any) Item {
	return Item{Name: name, Level: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// unseen is an Item about what could not be looked at.
func unseen(name string, err error) Item {
	return warn(name, "run sluice check as root", "could not be looked at: %v", err)
}
