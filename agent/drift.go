package agent

import (
	"fmt"
	"slices"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
)

// foreignChange is the news that another program changed a family's rules.
type foreignChange struct {
	p  *proxier
	by proxy.Program
}

// drift is what a family knows of changes by other programs.
type drift struct {
	repairs int
	// logged is when a repair was logged last; quietly says that the one that waits is not.
	logged  time.Time
	quietly bool
	// waits says that a repair waits, of what by changed.
	waits bool
	by    proxy.Program
	// last are the last repairs, the latest last.
	last []status.Drift
	// latest is when the last repair was asked for, and row how many followed each other closely.
	latest time.Time
	row    int
}

const (
	// repairLogPause is how long one line of the log stands for all repairs: programs that fight make one each second.
	repairLogPause = time.Minute
	// driftsKept bounds the repairs that status tells of, and changesKept the changes of each.
	driftsKept, changesKept = 10, 5
	// After fightRepairs repairs with less than fightGap between them, each waits for fightShare times what the last one took,
	// fightPause at most: two programs that mend each other's rules would keep the machine busy.
	fightRepairs = 10
	fightGap     = 5 * time.Second
	fightShare   = 15
	fightPause   = 10 * time.Second
)

// mend handles the news that another program changed our rules.
func (l *loop) mend(c foreignChange) {
	now := time.Now()
	p, d := c.p, &c.p.drift
	d.repairs++
	l.metrics.Repaired(p.family)
	if d.quietly = now.Sub(d.logged) < repairLogPause; !d.quietly {
		d.logged = now
		p.log.Warn("another program changed sluice's rules; they are compared and mended, each time it happens", "program", c.by.String(), "times", d.repairs)
	}
	d.waits, d.by = true, c.by
	if now.Sub(d.latest) > fightGap {
		d.row = 0
	}
	d.latest = now
	if d.row++; d.row > fightRepairs && p.failures == 0 {
		p.retryAt = now.Add(min(fightShare*p.lastTook, fightPause))
	}
	p.mustReconcile(now)
}

// mended notes what a repair found, if one waited, and returns it in words.
func (d *drift) mended(f proxy.Family, found []proxy.Difference, now time.Time) (changes []string) {
	if !d.waits {
		return nil
	}
	d.waits = false
	changes = changesOf(found)
	entry := status.Drift{Family: f, Time: now, Program: d.by.Name, Times: 1, Fight: d.row > fightRepairs, Changes: changes}
	if n := len(d.last); n > 0 && d.last[n-1].Program == entry.Program && slices.Equal(d.last[n-1].Changes, entry.Changes) {
		entry.Times += d.last[n-1].Times
		d.last = d.last[:n-1]
	}
	if len(d.last) == driftsKept {
		d.last = slices.Delete(d.last, 0, 1)
	}
	d.last = append(d.last, entry)
	return changes
}

// changesOf are the first of the differences, in words.
func changesOf(found []proxy.Difference) (list []string) {
	for _, d := range found[:min(len(found), changesKept)] {
		list = append(list, d.String())
	}
	if more := len(found) - changesKept; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}
