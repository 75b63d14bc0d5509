package kube

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/agent/source"
)

// Times of problems.
const (
	// minSettle is how long a problem must stay away before it counts as ended. Each time
	// that it comes back within forgetAfter the time doubles, up to maxSettle, so that what
	// comes and goes is one problem and not many.
	minSettle   = 2 * time.Second
	maxSettle   = 2 * time.Minute
	forgetAfter = 10 * time.Minute
	// starting is how long a server may answer with errors before that is a problem. One that
	// starts does so: it forbids everything until it has read its roles.
	starting = 5 * time.Second
)

// fault is why something did not work.
type fault struct {
	// class tells kinds of fault apart: what has the same class is one problem, whoever meets it.
	class string
	// where is a server or a file, resource the collection if it is about one alone: those
	// who meet the same fault with several are one problem at several places.
	where, resource string
	reason          string
}

// problems collects the faults that last. Each is logged when it begins and when it ends.
type problems struct {
	log    *slog.Logger
	settle time.Duration // minSettle, but in tests

	mu      sync.Mutex
	byClass map[string]*problem
	changed chan struct{}
}

// problem is one class of fault.
type problem struct {
	source.Problem
	where string
	// holders are those who meet it now, like "services watch", and the fault's resource.
	holders map[string]string
	lasts   bool      // from its begin until it is logged as ended
	metAt   time.Time // since when there are holders
	freeAt  time.Time // when the last holder let go
	settle  time.Duration
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, settle: minSettle, byClass: map[string]*problem{}, changed: make(chan struct{}, 1)}
}

// failed notes that holder meets f, and no other fault.
func (p *problems) failed(holder string, f fault) { p.failing(holder, f, 0) }

// failing notes that holder meets f, and no other fault. That is a problem only if it is met again
// after some time without a time between when nobody met it.
func (p *problems) failing(holder string, f fault, after time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(holder, f.class)
	pr := p.byClass[f.class]
	if pr == nil {
		pr = &problem{holders: map[string]string{}, settle: p.settle}
		p.byClass[f.class] = pr
	}
	if pr.lasts && (pr.where != f.where || pr.Reason != f.reason) {
		pr.where, pr.Reason = f.where, f.reason // what is wrong now; the log has what it began with
		p.signal()
	}
	if _, known := pr.holders[holder]; known && pr.lasts {
		return
	}
	if len(pr.holders) == 0 {
		pr.metAt = now
	}
	pr.holders[holder] = f.resource
	p.signal()
	if pr.lasts || now.Sub(pr.metAt) < after {
		return
	}
	if !pr.Since.IsZero() {
		pr.settle = min(2*pr.settle, maxSettle)
	}
	pr.Since, pr.lasts = pr.metAt, true
	pr.where, pr.Reason = f.where, f.reason
	pr.Where = pr.place()
	p.log.Warn("a problem with the API server began; the rules stay as they are", "where", pr.Where, "reason", pr.Reason)
}

// place names the server and the resources of all holders.
func (pr *problem) place() string {
	var resources []string
	for _, r := range pr.holders {
		if r != "" && !slices.Contains(resources, r) {
			resources = append(resources, r)
		}
	}
	slices.Sort(resources)
	return strings.TrimSpace(pr.where + " " + strings.Join(resources, ", "))
}

// works notes that holder meets no fault.
func (p *problems) works(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.release(holder, "") {
		p.signal()
	}
}

// begins notes that something of holder has begun well. It is open whether it goes on so,
// but what is no problem yet it does not meet.
func (p *problems) begins(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pr := range p.byClass {
		if !pr.lasts && pr.release(holder) {
			p.signal()
		}
	}
}

// release lets holder go from all classes but one. It tells whether it had any.
func (p *problems) release(holder, but string) bool {
	had := false
	for class, pr := range p.byClass {
		if class != but && pr.release(holder) {
			had = true
			if len(pr.holders) == 0 {
				p.signal()
			}
		}
	}
	return had
}

// release lets holder go, and tells whether it was one.
func (pr *problem) release(holder string) bool {
	if _, ok := pr.holders[holder]; !ok {
		return false
	}
	delete(pr.holders, holder)
	if len(pr.holders) == 0 {
		pr.freeAt = time.Now()
	}
	return true
}

func (p *problems) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run ends what has stayed away for long enough, and tells the sink what lasts.
func (p *problems) run(ctx context.Context, sink source.Sink) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var told []source.Problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-timer.C:
		}
		lasting, next := p.review(time.Now())
		if !slices.Equal(lasting, told) {
			sink.SetProblems(lasting)
			told = lasting
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// review returns what lasts, sorted, and the time until it must be called again (0: not at all).
func (p *problems) review(now time.Time) (lasting []source.Problem, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class, pr := range p.byClass {
		var wait time.Duration
		switch {
		case len(pr.holders) > 0 && !pr.lasts:
			continue // until it is met again
		case len(pr.holders) > 0:
			pr.Where = pr.place()
			lasting = append(lasting, pr.Problem)
			continue
		case pr.lasts && now.Sub(pr.freeAt) >= pr.settle:
			pr.lasts = false
			p.log.Info("a problem with the API server ended", "where", pr.Where, "reason", pr.Reason,
				"lasted", pr.freeAt.Sub(pr.Since).Round(time.Millisecond))
			wait = forgetAfter
		case pr.lasts:
			lasting = append(lasting, pr.Problem)
			wait = pr.settle - now.Sub(pr.freeAt)
		case now.Sub(pr.freeAt) >= forgetAfter:
			delete(p.byClass, class)
			continue
		default:
			wait = forgetAfter - now.Sub(pr.freeAt)
		}
		if next == 0 || wait < next {
			next = max(wait, time.Millisecond)
		}
	}
	slices.SortFunc(lasting, func(a, b source.Problem) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Reason, b.Reason))
	})
	return lasting, next
}
