// Package check looks at a machine and says what keeps sluice from working on it, or will: one
// Item for each thing. What is read is kept apart from what it means: the judges are functions
// of values.
package check

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
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
	// Unseen is true of what could not be looked at; Level is Warn then.
	Unseen bool `json:"unseen,omitempty"`
}

// Report is all that was looked at.
type Report struct {
	Items []Item `json:"items"`
	// Warnings counts the items of Level Warn that were looked at.
	Warnings int `json:"warnings"`
	// Unseen counts what could not be looked at.
	Unseen   int `json:"unseen"`
	Failures int `json:"failures"`
}

// The groups, in the order in which they are printed.
const (
	groupConfig  = "Configuration"
	groupKernel  = "Kernel"
	groupNetwork = "Network"
	groupOthers  = "Other programs"
	groupCluster = "Cluster"
	groupMachine = "Machine"
)

// Options for Run.
type Options struct {
	Config config.Config
	// Warnings are about what in the configuration has no effect.
	Warnings []string
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
	l.manifests = l.readManifests()
	var r Report
	for _, group := range []struct {
		name string
		look func() []Item
	}{
		{groupConfig, l.configuration}, {groupKernel, l.kernel}, {groupNetwork, l.network}, {groupOthers, l.others}, {groupCluster, l.cluster}, {groupMachine, l.machine},
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
	switch {
	case item.Unseen:
		r.Unseen++
	case item.Level == Warn:
		r.Warnings++
	case item.Level == Fail:
		r.Failures++
	}
}

// looker reads what the judges judge.
type looker struct {
	Options
	ctx context.Context
	// manifests is what --manifests has; nil without.
	manifests *manifests
}

func (l *looker) path(p string) string { return filepath.Join(l.Root, p) }

// configuration says what in it has no effect.
func (l *looker) configuration() []Item {
	if len(l.Warnings) == 0 {
		return []Item{ok("options", "")}
	}
	var items []Item
	for _, w := range l.Warnings {
		detail, remedy := split(w)
		items = append(items, warn("options", remedy, "%s", detail))
	}
	return items
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

// denied finds in errors, also of programs, that root is needed.
var denied = regexp.MustCompile(`(?i)not permitted|permission denied|must be root`)

// maxDenied bounds an error that is shown beside "needs root": a short one names the file.
const maxDenied = 80

// unseen is an Item about what could not be looked at.
func unseen(name string, err error) Item {
	text := oneLine(err.Error())
	switch {
	case denied.MatchString(text) && len(text) > maxDenied:
		text = "needs root"
	case denied.MatchString(text):
		text = "needs root: " + text
	default:
		text = "could not be looked at: " + text
	}
	item := warn(name, "run sluice check as root", "%s", text)
	item.Unseen = true
	return item
}

// maxLine bounds the errors of programs that an Item has, in bytes.
const maxLine = 200

// oneLine makes one of what a program wrote.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "..."
	}
	return text
}
