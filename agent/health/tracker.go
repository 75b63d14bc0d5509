package health

import (
	"sync"
	"time"

	"sluice/proxy"
)

// Tracker knows whether changes reach the kernel in time. Its methods may be
// called from any goroutine.
type Tracker struct {
	timeout time.Duration
	now     func() time.Time

	mu sync.Mutex
	// queued is when the oldest change came that is not in the kernel; families without one are missing.
	queued     map[proxy.Family]time.Time
	updated    map[proxy.Family]time.Time
	ineligible bool
	age        func() (time.Duration, bool) // nil: unknown
	probes     Probes
}

// Probes counts the questions that were answered, by path.
type Probes struct{ Healthz, Livez Answers }

// Answers counts answers by their HTTP status.
type Answers struct{ OK, Unavailable uint64 } // 200 and 503

// Probes returns how often Serve answered for this Tracker.
func (t *Tracker) Probes() Probes {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.probes
}

func (t *Tracker) count(a *Answers, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok {
		a.OK++
	} else {
		a.Unavailable++
	}
}

// NewTracker returns a Tracker for which a change that waits as long as timeout
// makes its family unhealthy; kube-proxy's timeout is twice the sync period. now
// is the clock; nil is time.Now.
func NewTracker(timeout time.Duration, now func() time.Time) *Tracker {
	if now == nil {
		now = time.Now
	}
	return &Tracker{
		timeout: timeout, now: now,
		queued: map[proxy.Family]time.Time{}, updated: map[proxy.Family]time.Time{},
	}
}

// Queued notes that a family has a change that is not in the kernel yet.
func (t *Tracker) Queued(f proxy.Family) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waiting := t.queued[f]; !waiting {
		t.queued[f] = t.now()
	}
}

// Updated notes that all of a family's changes are in the kernel.
func (t *Tracker) Updated(f proxy.Family) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.queued, f)
	t.updated[f] = t.now()
}

// SetNodeEligible says whether load balancers may go on to use this node. They
// may not once it is being deleted; see NodeEligible. Until told otherwise they may.
func (t *Tracker) SetNodeEligible(eligible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ineligible = !eligible
}

// SetKnowledge sets what tells how long ago the objects were in step with the API server, if that is known.
// An old cache makes no one unhealthy: its rules are the best there are.
func (t *Tracker) SetKnowledge(age func() (time.Duration, bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.age = age
}

// Healthy tells whether no family has a change that waits too long.
func (t *Tracker) Healthy() bool { return t.status().Healthy }

// status is the body of an answer, in the format of kube-proxy. Its NodeEligible
// is left out: only /healthz has it.
type status struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
	// KnowledgeAgeSeconds is not in kube-proxy's answer; nil if unknown.
	KnowledgeAgeSeconds *float64 `json:"knowledgeAgeSeconds,omitempty"`
}

// familyStatus is a part of status; it stands under "IPv4" or "IPv6".
type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// status says how the families are. One that never wrote its rules is there only
// when it is late: then it is unhealthy, which kube-proxy does not notice.
func (t *Tracker) status() status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := status{CurrentTime: t.now(), Healthy: true, Status: map[string]familyStatus{}}
	if t.age != nil {
		if age, known := t.age(); known {
			seconds := age.Seconds()
			s.KnowledgeAgeSeconds = &seconds
		}
	}
	for _, f := range proxy.Families {
		updated, once := t.updated[f]
		queued, waiting := t.queued[f]
		late := waiting && s.CurrentTime.Sub(queued) >= t.timeout
		if !once && !late {
			continue
		}
		if updated.After(s.LastUpdated) {
			s.LastUpdated = updated
		}
		s.Healthy = s.Healthy && !late
		s.Status[f.String()] = familyStatus{LastUpdated: updated, Healthy: !late}
	}
	return s
}

func (t *Tracker) nodeEligible() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ineligible
}
